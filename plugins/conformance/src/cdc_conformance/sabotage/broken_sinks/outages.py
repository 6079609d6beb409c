"""Mistakes when the destination fails or stalls."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar

from cdc_conformance.reference.partitions import Line, encoded
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import (
    Flushed,
    RetryableSinkError,
    RowBatch,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)

__all__ = [
    "BuffersWithoutEnd",
    "FlushesWhenClosed",
    "GivesUpAtOnce",
    "GivesUpForAnOutage",
    "KeepsFilesOpen",
    "RaisesWhatItGets",
    "RemembersFailures",
    "SendsAgainLater",
    "TellsEverything",
]


class GivesUpForAnOutage(ReferenceSink):
    """Ends the changefeed when the destination is away for a moment."""

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise TerminalSinkError(str(error)) from error


class SendsAgainLater(ReferenceSink):
    """Sends each batch at once, and one that failed once more at the end, behind those that came after it."""

    late: Sequence[tuple[str, int, Line]] = ()

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.late = ()

    def emit(self, rows: RowBatch) -> None:
        super().emit(rows)
        sent = self.buffer
        try:
            self.write()
        except RetryableSinkError:
            self.late, self.buffer = [*self.late, *sent], []
            self._there.clear()

    def flush(self) -> Flushed:
        self.buffer, self.late = [*self.buffer, *self.late], ()
        return super().flush()


class RemembersFailures(ReferenceSink):
    """Has a breaker that nothing closes again."""

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
    """Writes on into files that were replaced under it."""

    def append(self, topic: str, partition: int, lines: list[Line]) -> int:
        files: dict[tuple[str, int], IO[bytes]] = self.__dict__.setdefault("files", {})
        self.partitions.probe()
        if (topic, partition) not in files:
            super().append(topic, partition, lines)
            files[topic, partition] = self.partitions.path(topic, partition).open("ab", buffering=0)
            return 1
        return files[topic, partition].write(encoded(lines))

    def close(self) -> None:
        for file in self.__dict__.pop("files", {}).values():
            file.close()
        super().close()


class RaisesWhatItGets(ReferenceSink):
    """Lets the file system's own errors out."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.require_open()
        list(self.partitions.root.iterdir())
        super().emit_resolved(timestamp)


class TellsEverything(ReferenceSink):
    """Puts the whole traceback into its message."""

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except RetryableSinkError as error:
            raise RetryableSinkError(f"{error}:\n{traceback.format_exc()}") from error


class GivesUpAtOnce(ReferenceSink):
    """Hands over to a thread when the destination is slow, and hopes."""

    def flush(self) -> Flushed:
        self.require_open()
        if not self.partitions.is_locked():
            return super().flush()
        lines, self.buffer = self.buffer, []

        def later() -> None:
            self.buffer = lines
            self.write()

        threading.Thread(target=later).start()
        return Flushed(messages=len(lines))


class BuffersWithoutEnd(ReferenceSink):
    """Takes as much as it is given."""

    def write(self) -> None:
        if not self.partitions.is_locked():
            super().write()

    def flush(self) -> Flushed:
        self.partitions.probe()
        return super().flush()


class FlushesWhenClosed(ReferenceSink):
    """Wants to lose nothing in `close`, however long that takes."""

    def close(self) -> None:
        if self.buffer and self.partitions.is_locked():
            self.write()
        super().close()
