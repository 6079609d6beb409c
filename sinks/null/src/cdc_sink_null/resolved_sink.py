"""The part that runs in the coordinator: encodes resolved marks and throws them away."""

from __future__ import annotations

from cdc_core import ResolvedSink, SinkContext, TerminalSinkError, Timestamp

__all__ = ["NullResolvedSink"]


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
