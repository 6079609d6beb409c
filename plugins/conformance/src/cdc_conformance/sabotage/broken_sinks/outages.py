"""Mistakes when the destination fails or stalls."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import IO, ClassVar

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.resolved_sink import ReferenceResolvedSink
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.broken_sinks.tampering import Buffered, LateSink, is_locked, probe
from cdc_core import Flushed, RetryableSinkError, RowBatch, SliceInfo, TerminalSinkError, Timestamp

__all__ = [
    "BuffersWithoutLimit",
    "EndsForAnOutage",
    "FlushesInClose",
    "FlushesInTheBackground",
    "KeepsFilesOpen",
    "PutsTracebacksIntoErrors",
    "RaisesClientErrors",
    "RemembersOutages",
    "SendsAgainLater",
]


class EndsForAnOutage(ReferenceSink):
    """Ends the changefeed when the destination is down for a moment."""

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise TerminalSinkError(str(error)) from error


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


class KeepsFilesOpen(ReferenceSink):
    """Keeps writing to open files after they were replaced."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        files: dict[tuple[str, int], IO[bytes]] = self.__dict__.setdefault("files", {})
        probe(self.partitions)
        if (topic, partition) not in files:
            super().append(topic, partition, lines)
            files[topic, partition] = self.partitions.path(topic, partition).open("ab", buffering=0)
            return 1
        return files[topic, partition].write(b"".join(line.to_bytes() for line in lines))

    def close(self) -> None:
        for file in self.__dict__.pop("files", {}).values():
            file.close()
        super().close()


class RaisesClientErrors(ReferenceResolvedSink):
    """Raises the file system's own errors."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        list(self.partitions.root.iterdir())
        super().emit_resolved(timestamp)


class PutsTracebacksIntoErrors(ReferenceSink):
    """Puts the traceback into its error."""

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise RetryableSinkError(f"{error}:\n{traceback.format_exc()}") from error


class FlushesInTheBackground(LateSink):
    """Leaves rows to a thread when the destination is slow."""

    def flush(self) -> Flushed:
        self.require_open()
        if not is_locked(self.partitions):
            return super().flush()
        flushed = self.count_only()
        threading.Thread(target=self.write_late).start()
        return flushed


class BuffersWithoutLimit(ReferenceSink):
    """Holds any number of rows."""

    def write(self) -> None:
        if not is_locked(self.partitions):
            super().write()

    def flush(self) -> Flushed:
        probe(self.partitions)
        return super().flush()


class FlushesInClose(ReferenceSink):
    """Writes unflushed rows in `close`, however long that takes."""

    def close(self) -> None:
        if self.buffer and is_locked(self.partitions):
            self.write()
        super().close()
