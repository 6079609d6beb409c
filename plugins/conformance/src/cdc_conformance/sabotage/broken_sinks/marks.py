"""Mistakes with crashes, repetition and resolved marks."""

from __future__ import annotations

import contextlib
from pathlib import Path

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.resolved_sink import ReferenceResolvedSink
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.broken_sinks.tampering import LateSink, cut, probe, value_bytes
from cdc_core import Flushed, RefusedRowsError, RetryableSinkError, RowBatch, SliceInfo, Timestamp

__all__ = [
    "AllowsEachMarkOnce",
    "LeavesMarksToClose",
    "LeavesRowsToClose",
    "LocksWithAFile",
    "MarksAfterFlush",
    "MarksOnePartition",
    "PutsMarksFirst",
    "RoundsTimestamps",
    "SendsTheNewestInClose",
    "UndoesTheUnresolved",
    "WritesEverythingAgain",
]


class LeavesRowsToClose(LateSink):
    """Leaves to `close` what its first `flush` must write."""

    flushes = 0

    def flush(self) -> Flushed:
        self.require_open()
        probe(self.partitions)
        self.flushes += 1
        self.write_late()
        too_large = any(value_bytes(line) > self.options.max_message_bytes for *_, line in self.buffer)
        return super().flush() if self.flushes > 1 or self.refused or too_large else self.count_only()

    def write(self) -> None:
        try:
            super().write()
        except RefusedRowsError:
            self.flushes += 1  # the promises about refused rows must hold
            raise


class UndoesTheUnresolved(ReferenceSink):
    """Removes in a later attempt whatever no resolved mark covers, as if all of it were repeated."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        if self.context.epoch > 1 and slice_.step == 0:
            for topic, partition in self.partitions.endpoints:
                cut(self.partitions, topic, partition)


class SendsTheNewestInClose(ReferenceSink):
    """Sends the last batch in `close`."""

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


class LocksWithAFile(ReferenceSink):
    """Locks a slice with a file that only the same process removes."""

    held: Path | None = None

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self._release()
        lock = self.partitions.root / f".busy-{slice_.index}"
        if lock.exists():
            raise RetryableSinkError(f"another sink holds the lock {lock}; wait")
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

    def _release(self) -> None:
        if self.held is not None:
            with contextlib.suppress(OSError):
                self.held.unlink(missing_ok=True)
        self.held = None


class WritesEverythingAgain(ReferenceSink):
    """Declares that it recognizes repeated rows, and does not."""

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        del topic, partition
        return lines


class PutsMarksFirst(ReferenceResolvedSink):
    """Writes the mark at the start of a partition, where it is found fastest."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic, partition in self.partitions.endpoints:
            probe(self.partitions)
            there = list(self.partitions.read(topic, partition))
            cut(self.partitions, topic, partition)
            self.partitions.append(topic, partition, [self.mark(topic, timestamp), *there])


class MarksOnePartition(ReferenceResolvedSink):
    """Sends the mark to one partition, like any message."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        for topic in self.partitions.topics:
            self.partitions.append(topic, 0, [self.mark(topic, timestamp)])


class MarksAfterFlush(ReferenceSink):
    """Emits a resolved mark for what it has flushed."""

    latest = Timestamp()

    def emit(self, rows: RowBatch) -> None:
        super().emit(rows)
        self.latest = max(self.latest, rows.latest())

    def flush(self) -> Flushed:
        flushed = super().flush()
        if flushed.messages:
            ReferenceResolvedSink(self.context).emit_resolved(self.latest)
        return flushed


class AllowsEachMarkOnce(ReferenceResolvedSink):
    """Names a file after the timestamp, and refuses the second one."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        super().emit_resolved(timestamp)
        try:
            (self.partitions.root / f".resolved-{timestamp}").touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"the mark {timestamp} exists already; emit another one") from None


class RoundsTimestamps(ReferenceResolvedSink):
    """Has no place for the logical part of a timestamp."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        super().emit_resolved(Timestamp(timestamp.wall))


class LeavesMarksToClose(ReferenceResolvedSink):
    """Writes marks in `close`."""

    late: tuple[Timestamp, ...] = ()

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        probe(self.partitions)
        self.late += (timestamp,)

    def close(self) -> None:
        marks, self.late = self.late, ()
        for mark in marks:
            super().emit_resolved(mark)
        super().close()
