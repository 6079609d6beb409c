"""Everything that a sink needs to know before it connects, checked."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cdc_core.encoder import Encoder
from cdc_core.errors import ConfigError
from cdc_core.masking import mask, secret_forms, uri_secrets
from cdc_core.options import secret_values
from cdc_core.sink import SinkContext
from cdc_sink_webhook.batches import Batches
from cdc_sink_webhook.bodies import CSV, JSON, Format
from cdc_sink_webhook.client import Client
from cdc_sink_webhook.delivery import Delivery
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.repeats import Repeats
from cdc_sink_webhook.sink_config import SinkConfig
from cdc_sink_webhook.tls import tls_context

__all__ = ["Plan"]

_FORMATS = {".ndjson": JSON, ".json": JSON, ".csv": CSV}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What options and URI say together."""

    endpoint: Endpoint
    options: WebhookOptions = field(repr=False)
    config: SinkConfig
    format: Format
    feed: str
    """What tells the changefeed from others that send to the same endpoint."""
    tls: ssl.SSLContext | None = field(repr=False)
    mask: Callable[[str], str] = field(repr=False)

    @classmethod
    def of(cls, context: SinkContext) -> Plan:
        """Read *context*. Connects to nothing. Raises: ConfigError for the first thing that cannot work."""
        options: WebhookOptions = context.options
        endpoint = Endpoint.of(context.uri, options)
        secrets = secret_forms({*secret_values(options), *uri_secrets(context.uri), *endpoint.secrets()})
        plan = cls(
            endpoint=endpoint,
            options=options,
            config=SinkConfig.of(options.webhook_sink_config),
            format=_format_of(context.encoder),
            feed=context.feed_id or context.changefeed,
            tls=tls_context(endpoint, options),
            mask=partial(mask, secrets=secrets),
        )
        plan.client()
        return plan

    def client(self) -> Client:
        """Return a new client, connected to nothing. Raises: ConfigError."""
        return Client(self.endpoint, self.options, context=self.tls, format=self.format, mask=self.mask)

    def batches(self, occasion: str = "") -> Batches:
        """Return what cuts rows into requests. No batch takes more than a quarter of the buffer."""
        return Batches(
            self.config.flush(),
            format=self.format,
            compression=self.options.compression,
            feed=self.feed,
            occasion=occasion,
            limit=self.options.buffer_size // 4,
        )

    def delivery(self, batches: Batches, repeats: Repeats) -> Delivery:
        """Return what delivers requests that *batches* made, and tells *repeats* of those that failed."""
        return Delivery(
            self.client(),
            self.config.retry(),
            halves=batches.halves,
            endpoint=str(self.endpoint),
            repeats=repeats,
        )


def _format_of(encoder: Encoder) -> Format:
    """Return how messages of *encoder* become bodies. Raises: ConfigError when they are neither JSON nor CSV."""
    format_ = _FORMATS.get(encoder.file_extension)
    if format_ is None or getattr(encoder.context.options, "confluent_schema_registry", None) is not None:
        raise ConfigError(
            "sink 'webhook' sends messages that are JSON or CSV as they stand: choose the format json or csv, without"
            " confluent_schema_registry"
        )
    return format_
