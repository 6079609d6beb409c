"""Mistakes with crashes, repetition and resolved marks, and when the destination fails or stalls."""

from __future__ import annotations

import contextlib
import threading
import traceback
from pathlib import Path
from typing import IO, ClassVar

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceResolvedSink, ReferenceSink
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_sinks.tampering import Buffered, LateSink, cut, is_locked, probe, value_bytes
from cdc_core import (
    Flushed,
    RefusedRowsError,
    RetryableSinkError,
    RowBatch,
    SinkContext,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)


@mistakes
class Delivery(LateSink):
    @breaks("test_a_flushed_but_unreported_slice_can_be_repeated", "begin")
    def undoes_the_unresolved(self, slice_: SliceInfo) -> None:
        """Removes in a later attempt whatever no resolved mark covers, as if all of it were repeated."""
        super().begin(slice_)
        if self.context.epoch > 1 and slice_.step == 0:
            for topic, partition in self.partitions.endpoints:
                cut(self.partitions, topic, partition)

    @breaks("test_an_unfinished_slice_can_be_repeated", "close")
    def sends_the_newest_in_close(self) -> None:
        """Sends the last batch in `close`."""
        if self.buffer and len(self.batches) > 1:
            self.buffer = self.buffer[-self.batches[-1] :]
            self.write()
        super().close()

    @breaks("test_repeated_rows_are_not_duplicated", "unwritten")
    def writes_everything_again(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:  # noqa: ARG002
        """Declares that it recognizes repeated rows, and does not."""
        return lines

    @breaks("test_only_emit_resolved_writes_marks", "flush")
    def marks_after_flush(self) -> Flushed:
        """Emits a resolved mark for what it has flushed."""
        flushed = super().flush()
        if flushed.messages:
            ReferenceResolvedSink(self.context).emit_resolved(self.latest)
        return flushed

    @breaks("test_an_outage_is_retryable", "flush")
    def ends_for_an_outage(self) -> Flushed:
        """Ends the changefeed when the destination is down for a moment."""
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise TerminalSinkError(str(error)) from error

    @breaks("test_errors_are_one_line", "flush")
    def puts_tracebacks_into_errors(self) -> Flushed:
        """Puts the traceback into its error."""
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise RetryableSinkError(f"{error}:\n{traceback.format_exc()}") from error

    @breaks("test_flush_waits_for_acknowledgement", "flush")
    def flushes_in_the_background(self) -> Flushed:
        """Leaves rows to a thread when the destination is slow."""
        self.require_open()
        if not is_locked(self.partitions):
            return super().flush()
        flushed = self.count_only()
        threading.Thread(target=self.write_late).start()
        return flushed

    @breaks("test_close_does_not_wait_for_a_stalled_destination", "close")
    def flushes_in_close(self) -> None:
        """Writes unflushed rows in `close`, however long that takes."""
        if self.buffer and is_locked(self.partitions):
            self.write()
        super().close()


@breaks("test_flush_is_a_barrier")
class LeavesRowsToClose(LateSink):
    """Leaves to `close` what its first `flush` must write."""

    done = False

    def flush(self) -> Flushed:
        self.require_open()
        probe(self.partitions)
        self.write_late()
        too_large = any(value_bytes(line) > self.options.max_message_bytes for *_, line in self.buffer)
        first, self.done = not self.done, True
        return self.count_only() if first and not self.refused and not too_large else super().flush()

    def write(self) -> None:
        try:
            super().write()
        except RefusedRowsError:
            self.done = True  # the promises about refused rows must hold
            raise


@breaks("test_a_dead_process_blocks_nothing")
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


@breaks("test_an_outage_within_a_slice_loses_and_reorders_nothing")
class SendsAgainLater(ReferenceSink):
    """Sends each batch at once, and a failed batch again at the end, after later batches."""

    late: tuple[Buffered, ...] = ()

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.late = ()

    def emit(self, rows: RowBatch) -> None:
        super().emit(rows)
        sent = self.buffer
        try:
            self.write()
        except RetryableSinkError:
            self.late, self.buffer = (*self.late, *sent), []
            self._written.clear()

    def flush(self) -> Flushed:
        self.buffer, self.late = [*self.buffer, *self.late], ()
        return super().flush()


@breaks("test_a_new_sink_delivers_after_an_outage")
class RemembersOutages(ReferenceSink):
    """Has a circuit breaker that never closes again."""

    down: ClassVar[set[Path]] = set()

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        if self.partitions.root in self.down:
            raise RetryableSinkError(f"{self.partitions.root} failed before; wait")

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except RetryableSinkError:
            self.down.add(self.partitions.root)
            raise


@breaks("test_an_open_sink_survives_a_restart_of_the_destination")
class KeepsFilesOpen(ReferenceSink):
    """Keeps writing to open files after they were replaced."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self.files: dict[tuple[str, int], IO[bytes]] = {}

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        probe(self.partitions)
        if (topic, partition) not in self.files:
            super().append(topic, partition, lines)
            self.files[topic, partition] = self.partitions.path(topic, partition).open("ab", buffering=0)
            return 1
        return self.files[topic, partition].write(b"".join(line.to_bytes() for line in lines))

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        super().close()


@breaks("test_memory_is_bounded_while_the_destination_stalls")
class BuffersWithoutLimit(ReferenceSink):
    """Holds any number of rows."""

    def write(self) -> None:
        if not is_locked(self.partitions):
            super().write()

    def flush(self) -> Flushed:
        probe(self.partitions)
        return super().flush()


@mistakes
class Marks(ReferenceResolvedSink):
    @breaks("test_a_resolved_mark_follows_its_rows", "emit_resolved")
    def puts_marks_first(self, timestamp: Timestamp) -> None:
        """Writes the mark at the start of a partition, where it is found fastest."""
        self.require_open()
        for topic, partition in self.partitions.endpoints:
            probe(self.partitions)
            there = list(self.partitions.read(topic, partition))
            cut(self.partitions, topic, partition)
            self.partitions.append(topic, partition, [self.mark(topic, timestamp), *there])

    @breaks("test_a_resolved_mark_reaches_every_endpoint", "emit_resolved")
    def marks_one_partition(self, timestamp: Timestamp) -> None:
        """Sends the mark to one partition, like any message."""
        self.require_open()
        for topic in self.partitions.topics:
            self.partitions.append(topic, 0, [self.mark(topic, timestamp)])

    @breaks("test_a_resolved_mark_can_be_repeated", "emit_resolved")
    def allows_each_mark_once(self, timestamp: Timestamp) -> None:
        """Names a file after the timestamp, and refuses the second one."""
        super().emit_resolved(timestamp)
        try:
            (self.partitions.root / f".resolved-{timestamp}").touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"the mark {timestamp} already exists; emit another mark") from None

    @breaks("test_resolved_timestamps_are_exact", "emit_resolved")
    def rounds_timestamps(self, timestamp: Timestamp) -> None:
        """Has no place for the logical part of a timestamp."""
        super().emit_resolved(Timestamp(timestamp.wall))

    @breaks("test_all_errors_are_cdc_errors", "emit_resolved")
    def raises_client_errors(self, timestamp: Timestamp) -> None:
        """Raises the file system's own errors."""
        self.require_open()
        list(self.partitions.root.iterdir())
        super().emit_resolved(timestamp)


@breaks("test_a_resolved_mark_is_durable")
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
