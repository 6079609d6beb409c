"""The part that runs in tasks: encodes rows, counts the messages and throws them away."""

from __future__ import annotations

import time

from cdc_core import Flushed, RowBatch, Sink, SinkContext, TerminalSinkError

__all__ = ["NullSink"]


class NullSink(Sink):
    """Does what any sink of messages does, without a destination. It holds nothing but counts."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._messages = self._bytes = 0
        self._closed = False

    def emit(self, rows: RowBatch) -> None:
        self._require_open()
        batch = self.context.encoder.encode(rows, topic=self.context.topics().of(rows.schema.name))
        self._messages += len(batch)
        self._bytes += batch.nbytes

    def flush(self) -> Flushed:
        """Return after the option `delay`, with what a destination would hold now."""
        self._require_open()
        if self.context.options.delay:
            time.sleep(self.context.options.delay)
        flushed = Flushed(messages=self._messages, bytes=self._bytes)
        self._messages = self._bytes = 0
        return flushed

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("sink 'null' is closed")
