"""The webhook's destination: checks the endpoint."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdc_core import Destination, MessageBatch, RowBatch, each_event
from cdc_sink_webhook.delivery import MAX_JITTERED_WAIT_S
from cdc_sink_webhook.event_headers import event_headers
from cdc_sink_webhook.reachability import check_reachable
from cdc_sink_webhook.settings import Settings


class WebhookDestination(Destination):
    """An HTTPS endpoint. It needs no preparation."""

    def check(self) -> None:
        """Return when the endpoint accepts connections. Sends no request. Raises: ConfigError, in seconds."""
        settings = Settings.of(self.context)
        check_reachable(settings.endpoint, settings.tls, client_cert=settings.options.client_cert is not None)

    def preview(self, rows: RowBatch) -> MessageBatch:
        """Return the messages. The attributes of events are headers, as they will be in requests."""
        batch = super().preview(rows)
        if batch.attributes is None:
            return batch
        headers = [event_headers(event) for event in each_event(batch.attributes, len(batch))]
        return replace(batch, headers=pa.array(headers, pa.map_(pa.string(), pa.binary())))

    def longest_call_s(self) -> float:
        """Return the time that a request can take between two reports of a retry.

        That is a wait and two attempts, the second one because the connection was dropped. Each has its time limit
        twice: to connect, and until the answer.
        """
        return MAX_JITTERED_WAIT_S + 4 * Settings.of(self.context).options.webhook_client_timeout
