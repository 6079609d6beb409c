"""The webhook's destination: checks the endpoint."""

from __future__ import annotations

from cdc_core import Destination
from cdc_sink_webhook.delivery import LONGEST_WAIT_S
from cdc_sink_webhook.reachability import check_reachable
from cdc_sink_webhook.settings import Settings

__all__ = ["WebhookDestination"]


class WebhookDestination(Destination):
    """An HTTPS endpoint. It needs no preparation."""

    def check(self) -> None:
        """Return when the endpoint accepts connections. Sends no request. Raises: ConfigError, in seconds."""
        settings = Settings.of(self.context)
        check_reachable(settings.endpoint, settings.tls, client_cert=settings.options.client_cert is not None)

    def longest_call_s(self) -> float:
        """Return the time that a request can take between two reports of a retry.

        That is a wait and two attempts, the second one because the connection was dropped. Each has its time limit
        twice: to connect, and until the answer.
        """
        return LONGEST_WAIT_S + 4 * Settings.of(self.context).options.webhook_client_timeout
