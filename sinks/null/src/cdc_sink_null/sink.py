"""Encodes rows and resolved marks, counts the messages and throws them away."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from cdc_core import (
    ConfigError,
    Destination,
    Flushed,
    ResolvedSink,
    RowBatch,
    Sink,
    SinkContext,
    TerminalSinkError,
    Timestamp,
)


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


class NullResolvedSink(ResolvedSink):
    """Encodes each mark once for every topic."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._closed = False

    def emit_resolved(self, timestamp: Timestamp) -> None:
        if self._closed:
            raise TerminalSinkError("sink 'null' is closed")
        for topic in sorted({self.context.topics().of(table) for table in self.context.tables}):
            self.context.encoder.encode_resolved(topic, timestamp)

    def close(self) -> None:
        self._closed = True


class NullDestination(Destination):
    """Nothing: it is always reachable and writable."""

    def check(self) -> None:
        """Return when the URI names no place, since nothing would arrive there. Raises: ConfigError."""
        parts = urlsplit(self.context.uri)
        if parts.netloc or parts.path.strip("/"):
            raise ConfigError("sink 'null' delivers nothing and has no address; write its URI as null://")

    def longest_call_s(self) -> float:
        """Return 0: no row arrives late where none arrives."""
        return 0.0
