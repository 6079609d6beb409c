"""What broken sinks are derived from, and what only they do to a destination."""

from __future__ import annotations

import fcntl
import os
from typing import Any

from cdc_conformance.reference.partitions import Line, Partitions
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import Flushed, RowBatch, SinkContext, SliceInfo, Timestamp

Buffered = tuple[str, int, Line]
"""One message in the buffer of the reference sink: topic, partition and line."""


class WatchedSink(ReferenceSink):
    """Remembers what a mistake depends on: the slices, and the rows and flushes of the current one."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.known: dict[Any, Any] = {}
        self.slices = self.step = self.emits = self.flushes = self.total = 0
        self.latest = Timestamp()
        self.batches: list[int] = []

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.slices += 1
        self.step = slice_.step
        self.flushes = self.total = 0
        self.batches = []

    def emit(self, rows: RowBatch) -> None:
        self.emits += 1
        before = len(self.buffer)
        super().emit(rows)
        self.latest = max(self.latest, rows.latest())
        self.batches.append(len(self.buffer) - before)

    def flush(self) -> Flushed:
        self.batches = []
        flushed = super().flush()
        self.flushes += 1
        self.total += flushed.messages
        return flushed


class LateSink(WatchedSink):
    """Can count rows in `flush` and write them later, at the latest in `close`."""

    late: tuple[Buffered, ...] = ()

    def count_only(self) -> Flushed:
        """Return what `flush` would return, without writing."""
        self.late += tuple(self.buffer)
        flushed = Flushed(messages=len(self.buffer), bytes=sum(value_bytes(line) for *_, line in self.buffer))
        self.forget()
        return flushed

    def write_late(self) -> None:
        late, self.late = self.late, ()
        sink = ReferenceSink(self.context)
        sink.buffer = list(late)
        sink.write()

    def close(self) -> None:
        self.write_late()
        super().close()


def value_bytes(line: Line) -> int:
    """Return the size of a message's value."""
    return len(line.value or b"")


def cut(partitions: Partitions, topic: str, partition: int, size: int = 0) -> None:
    """Remove everything after the first *size* bytes of a partition."""
    with partitions.reaching(), partitions.writing():
        os.truncate(partitions.path(topic, partition), size)


def sizes(partitions: Partitions) -> dict[tuple[str, int], int]:
    """Return the size of every partition."""
    with partitions.reaching():
        paths = {endpoint: partitions.path(*endpoint) for endpoint in partitions.endpoints}
        return {endpoint: path.stat().st_size if path.exists() else 0 for endpoint, path in paths.items()}


def probe(partitions: Partitions) -> None:
    """Return when the destination can be written. Raises: RetryableSinkError."""
    with partitions.reaching(), partitions.writing():
        pass


def is_locked(partitions: Partitions) -> bool:
    """Return whether another process keeps writers waiting."""
    with partitions.reaching(), (partitions.root / ".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
