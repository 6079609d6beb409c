"""The resolved marks of the reference sink."""

from __future__ import annotations

from cdc_conformance.reference.partitions import Line, Partitions
from cdc_core import ResolvedSink, SinkContext, TerminalSinkError, Timestamp

__all__ = ["ReferenceResolvedSink"]


class ReferenceResolvedSink(ResolvedSink):
    """Appends each mark to every partition of every topic."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.partitions = Partitions.of(context)
        self._closed = False

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic, partition in self.partitions.endpoints:
            self.partitions.append(topic, partition, [self.mark(topic, timestamp)])

    def close(self) -> None:
        self._closed = True

    def mark(self, topic: str, timestamp: Timestamp) -> Line:
        return Line(key=None, value=self.context.encoder.encode_resolved(topic, timestamp), updated=None)

    def require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the reference sink is closed; open another one")
