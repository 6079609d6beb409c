"""Mistakes around death, repetition and resolved marks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import Flushed, RetryableSinkError, RowBatch, SliceInfo, Timestamp

__all__ = [
    "AllowsEachMarkOnce",
    "ClosesWithTheNewest",
    "HoldsItsLockInAFile",
    "KeepsMarksForLater",
    "KeepsRowsForLater",
    "MarksInFront",
    "MarksOnePartition",
    "MarksWhenFlushed",
    "RoundsTime",
    "UndoesTheUnresolved",
    "WritesEverythingAgain",
]


class KeepsRowsForLater(ReferenceSink):
    """Leaves to `close` what `flush` must do."""

    late: Sequence[tuple[str, int, Line]] = ()

    def flush(self) -> Flushed:
        self.require_open()
        self.partitions.probe()
        second = bool(self.late)
        self._catch_up()
        if second or any(len(line.value or b"") > self.options.max_message_bytes for *_, line in self.buffer):
            return super().flush()
        self.late = self.buffer
        flushed = Flushed(messages=len(self.buffer), bytes=sum(len(line.value or b"") for *_, line in self.buffer))
        self.forget()
        return flushed

    def close(self) -> None:
        self._catch_up()
        super().close()

    def _catch_up(self) -> None:
        if not self.late:
            return
        rows, self.buffer, self.late = self.buffer, list(self.late), ()
        self.write()
        self.forget()
        self.buffer = rows


class UndoesTheUnresolved(ReferenceSink):
    """Cuts off, in a later run, whatever no resolved mark covers, as if all of it were repeated."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        if self.context.epoch == 1 or slice_.step > 0:
            return
        for topic in self.topics:
            for partition in range(self.options.partitions):
                self.partitions.cut(topic, partition, 0)


class ClosesWithTheNewest(ReferenceSink):
    """Sends in `close` what it still has at hand: the last batch."""

    sizes: list[int]

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.sizes = []

    def emit(self, rows: RowBatch) -> None:
        before = len(self.buffer)
        super().emit(rows)
        self.sizes.append(len(self.buffer) - before)

    def flush(self) -> Flushed:
        self.sizes = []
        return super().flush()

    def close(self) -> None:
        if self.buffer and len(self.sizes) > 1:
            self.buffer = self.buffer[-self.sizes[-1] :]
            self.write()
        super().close()


class HoldsItsLockInAFile(ReferenceSink):
    """Keeps others out by a file that only it removes itself."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self._release()
        lock = self.partitions.root / f".busy-{slice_.index}"
        if lock.exists():
            raise RetryableSinkError(f"{lock} says that somebody writes; wait")
        with contextlib.suppress(OSError):
            lock.touch()
            self.held = lock

    def flush(self) -> Flushed:
        flushed = super().flush()
        self._release()
        return flushed

    def close(self) -> None:
        self._release()
        super().close()

    held: Path | None = None

    def _release(self) -> None:
        if self.held is not None:
            with contextlib.suppress(OSError):
                self.held.unlink(missing_ok=True)
        self.held = None


class WritesEverythingAgain(ReferenceSink):
    """Declares that it knows what it has, and does not look."""

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        del topic, partition
        return lines


class MarksInFront(ReferenceSink):
    """Writes the mark where it is found fastest, at the beginning."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic in self.topics:
            mark = Line(key=None, value=self.context.encoder.encode_resolved(topic, timestamp), updated=None)
            for partition in range(self.options.partitions):
                self.partitions.probe()
                there = list(self.partitions.read(topic, partition))
                self.partitions.cut(topic, partition, 0)
                self.partitions.append(topic, partition, [mark, *there])


class MarksOnePartition(ReferenceSink):
    """Sends the mark like any message, to the partition of its key."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic in self.topics:
            mark = Line(key=None, value=self.context.encoder.encode_resolved(topic, timestamp), updated=None)
            self.partitions.append(topic, self.partition_of(None), [mark])


class MarksWhenFlushed(ReferenceSink):
    """Resolves what it has flushed."""

    latest = Timestamp()

    def emit(self, rows: RowBatch) -> None:
        super().emit(rows)
        self.latest = max(self.latest, rows.latest())

    def flush(self) -> Flushed:
        flushed = super().flush()
        if flushed.messages:
            super().emit_resolved(self.latest)
        return flushed


class AllowsEachMarkOnce(ReferenceSink):
    """Names something by the timestamp, and takes the second one for a mistake."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        super().emit_resolved(timestamp)
        try:
            (self.partitions.root / f".resolved-{timestamp}").touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"the mark {timestamp} is there already; give another") from None


class RoundsTime(ReferenceSink):
    """Has no place for the logical part of a timestamp."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        super().emit_resolved(Timestamp(timestamp.wall))


class KeepsMarksForLater(ReferenceSink):
    """Leaves marks to `close`."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        self.partitions.probe()
        self.marks = [*getattr(self, "marks", []), timestamp]

    def close(self) -> None:
        for mark in getattr(self, "marks", []):
            super().emit_resolved(mark)
        self.marks = []
        super().close()
