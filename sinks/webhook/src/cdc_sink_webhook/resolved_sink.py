"""The webhook's resolved sink: posts resolved marks to an endpoint."""

from __future__ import annotations

from cdc_core import ResolvedSink, SinkContext, TerminalSinkError, Timestamp
from cdc_sink_webhook.batcher import Batcher
from cdc_sink_webhook.outbox import Outbox
from cdc_sink_webhook.settings import Settings


class WebhookResolvedSink(ResolvedSink):
    """Posts each resolved mark as one request, which is valid for all tables."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._outbox: Outbox | None = None
        self._batcher: Batcher | None = None
        self._closed = False

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when the endpoint has accepted the mark. Raises: TerminalSinkError when the endpoint refuses it."""
        if self._closed:
            raise TerminalSinkError("the webhook sink is closed")
        if self._outbox is None or self._batcher is None:
            settings = Settings.of(self.context)
            self._batcher = settings.batcher()
            self._outbox = settings.outbox(self._batcher, parallel=1, repeating=self.context.repeating)
        encoder = self.context.encoder
        events = encoder.context.events
        attributes = events.resolved(timestamp) if events is not None and events.binary else {}
        self._outbox.send([self._batcher.mark(encoder.encode_resolved("", timestamp), attributes)])
        self._outbox.flush()

    def close(self) -> None:
        """Close the connection, without waiting for an answer."""
        self._closed = True
        if self._outbox is not None:
            self._outbox.close()
