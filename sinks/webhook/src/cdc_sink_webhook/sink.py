"""The webhook sink."""

from __future__ import annotations

import threading

from cdc_core.errors import PartialWriteError, TerminalSinkError
from cdc_core.masking import mask, secret_forms, uri_secrets
from cdc_core.messages import MessageBatch
from cdc_core.options import secret_values
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.sink import Flushed, Sink, SinkContext, SliceInfo
from cdc_core.timestamp import Timestamp
from cdc_sink_webhook.batches import Batches
from cdc_sink_webhook.bodies import JSON
from cdc_sink_webhook.client import Client
from cdc_sink_webhook.delivery import Delivery
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.outbox import Outbox
from cdc_sink_webhook.reaching import reach
from cdc_sink_webhook.sink_config import SinkConfig
from cdc_sink_webhook.tls import tls_context

__all__ = ["WebhookSink"]

_CHUNK_ROWS = 4_096


class WebhookSink(Sink):
    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, WebhookOptions):
            raise TypeError(f"options must be WebhookOptions, not {type(context.options).__name__}")
        self._options: WebhookOptions = context.options
        self._config = SinkConfig.of(self._options.webhook_sink_config)
        self._frequency_s = float(self._config.flush().Frequency)
        self._format = JSON
        self._batches = Batches(
            self._config.flush(),
            format=self._format,
            compression=self._options.compression,
            changefeed=context.changefeed,
            limit=self._options.buffer_size // 4,
        )
        self._outbox: Outbox | None = None
        self._busy = threading.Lock()
        self._rows = 0
        self._begun = False
        self._closed = False

    def topic(self, table: TableName) -> str:
        return self.context.topics().of(table)

    def check(self) -> None:
        endpoint = Endpoint.of(self.context.uri, self._options)
        reach(endpoint, tls_context(endpoint, self._options))

    def prepare(self) -> None:
        """There is nothing to make."""

    def begin(self, slice_: SliceInfo) -> None:  # noqa: ARG002 (requests do not name their slice)
        self._require_open()
        self._begun = True
        if self._rows:
            self._drop()

    def emit(self, rows: RowBatch) -> None:
        self._require_open()
        if not self._begun:
            raise TerminalSinkError("the webhook sink was given rows before begin")
        if len(rows) == 0:
            return
        messages = self.context.encoder.encode(rows, topic=self.topic(rows.schema.name))
        with self._busy:
            outbox = self._opened()
            for start in range(0, len(rows), _CHUNK_ROWS):
                part = rows.slice(start, _CHUNK_ROWS)
                outbox.send(self._batches.add(part, _slice(messages, start), first=self._rows))
                self._rows += len(part)

    def flush(self) -> Flushed:
        self._require_open()
        with self._busy:
            if self._outbox is None:
                return Flushed()
            self._outbox.send(self._batches.rest())
            delivered = self._outbox.flush()
        self._rows = 0
        if delivered.failures:
            raise PartialWriteError(f"{len(delivered.failures)} rows are refused", failures=sorted(delivered.failures))
        return Flushed(messages=delivered.messages, bytes=delivered.nbytes)

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self._require_open()
        outbox = self._opened()
        outbox.send([self._batches.mark(self.context.encoder.encode_resolved("", timestamp))])
        outbox.flush()

    def close(self) -> None:
        self._drop()
        self._closed = True

    def _opened(self) -> Outbox:
        if self._outbox is None:
            endpoint = Endpoint.of(self.context.uri, self._options)
            context = tls_context(endpoint, self._options)
            secrets = secret_forms({*secret_values(self._options), *uri_secrets(self.context.uri)})

            def connect() -> Delivery:
                client = Client(
                    endpoint,
                    self._options,
                    context=context,
                    format=self._format,
                    mask=lambda text: mask(text, secrets),
                )
                return Delivery(
                    client,
                    self._config.retry(),
                    batches=self._batches,
                    format=self._format,
                    compression=self._options.compression,
                    endpoint=str(endpoint),
                )

            self._outbox = Outbox(
                connect, parallel=self._options.parallel_requests, most_bytes=self._options.buffer_size
            )
        return self._outbox

    def _drop(self) -> None:
        outbox, self._outbox = self._outbox, None
        self._rows = 0
        self._batches.forget()
        if outbox is not None:
            outbox.close()

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the webhook sink is closed")


def _slice(messages: MessageBatch, start: int) -> MessageBatch:
    return MessageBatch(
        topic=messages.topic,
        key=messages.key.slice(start, _CHUNK_ROWS),
        value=messages.value.slice(start, _CHUNK_ROWS),
        updated=messages.updated.slice(start, _CHUNK_ROWS),
    )
