"""The validated settings of a sink: what it needs before it connects."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cdc_core import ConfigError, Encoder, SinkContext, mask, secret_forms, secret_values, uri_secrets
from cdc_sink_webhook.batcher import Batcher
from cdc_sink_webhook.bodies import CSV, EVENT, EVENT_DATA, EVENTS, JSON, Format
from cdc_sink_webhook.client import Client
from cdc_sink_webhook.delivery import Delivery
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.event_headers import refuse_names_of_events
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.outbox import Outbox, Repeating
from cdc_sink_webhook.sink_config import SinkConfig
from cdc_sink_webhook.tls import tls_context

_FORMATS = {".ndjson": JSON, ".json": JSON, ".csv": CSV}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options and URI, parsed and checked together."""

    endpoint: Endpoint
    options: WebhookOptions = field(repr=False)
    config: SinkConfig
    format: Format
    feed: str
    """Distinguishes the changefeed from others that send to the same endpoint."""
    tls: ssl.SSLContext | None = field(repr=False)
    mask: Callable[[str], str] = field(repr=False)

    @classmethod
    def of(cls, context: SinkContext) -> Settings:
        """Return the settings in *context*. Connects to nothing. Raises: ConfigError for the first invalid one."""
        options: WebhookOptions = context.options
        endpoint = Endpoint.of(context.uri, options)
        secrets = secret_forms({*secret_values(options), *uri_secrets(context.uri), *endpoint.secrets()})
        config = SinkConfig.of(options.webhook_sink_config)
        settings = cls(
            endpoint=endpoint,
            options=options,
            config=config,
            format=_format_of(context.encoder, options, single=config.flush().single),
            feed=context.feed_id or context.changefeed,
            tls=tls_context(endpoint, options),
            mask=partial(mask, secrets=secrets),
        )
        settings.client()
        return settings

    def client(self) -> Client:
        """Return a new client, connected to nothing. Raises: ConfigError."""
        return Client(self.endpoint, self.options, context=self.tls, format=self.format, mask=self.mask)

    def batcher(self) -> Batcher:
        """Return a batcher. No batch takes more than a quarter of the buffer."""
        return Batcher(
            self.config.flush(),
            format=self.format,
            compression=self.options.compression,
            feed=self.feed,
            limit=self.options.buffer_size // 4,
        )

    def outbox(self, batcher: Batcher, *, parallel: int, repeating: Repeating) -> Outbox:
        """Start an outbox for the requests of *batcher*. It reports by *repeating* what it waits for."""
        return Outbox(
            lambda pending: Delivery(
                self.client(),
                self.config.retry(),
                halves=batcher.halves,
                endpoint=str(self.endpoint),
                pending=pending,
            ),
            parallel=parallel,
            max_bytes=self.options.buffer_size,
            repeating=repeating,
        )


def _format_of(encoder: Encoder, options: WebhookOptions, *, single: bool) -> Format:
    """Return how messages of *encoder* become bodies, one message in each if *single*.

    Raises: ConfigError when they are neither JSON nor CSV, and for options that cannot be combined with events.
    """
    events = encoder.context.events
    if events is not None:
        refuse_names_of_events(options.extra_headers or {})
        if events.binary and not single:
            raise ConfigError(
                "sink 'webhook': cloudevents_mode 'binary' sends one event in each request; remove Flush from"
                " webhook_sink_config, or set cloudevents_mode = 'structured'"
            )
        return EVENT_DATA if events.binary else EVENT if single else EVENTS
    format_ = _FORMATS.get(encoder.file_extension)
    if format_ is None or getattr(encoder.context.options, "confluent_schema_registry", None) is not None:
        raise ConfigError(
            "sink 'webhook' sends plain JSON or CSV. Choose format json or csv, without confluent_schema_registry"
        )
    return format_
