"""Mistakes about rows that cannot be encoded or are refused, and about several flushes of a slice."""

from __future__ import annotations

import contextlib
import dataclasses

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.broken_sinks.tampering import LateSink, cut, sizes, value_bytes
from cdc_core import (
    EncodeError,
    Flushed,
    RefusedRowsError,
    RowBatch,
    RowError,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)

__all__ = [
    "AcceptsOnlyLaterRows",
    "CountsRefusedRows",
    "CountsTheSlice",
    "DeclaresNoRefusals",
    "DiscardsAfterAnError",
    "DropsLargeRows",
    "FlushesOncePerSlice",
    "KeepsTheRestOfARefusal",
    "LimitsErrors",
    "ListsRefusedRowsTwice",
    "NumbersFromBegin",
    "NumbersFromOne",
    "NumbersWithinTheBatch",
    "OpensBeforeItEncodes",
    "OverwritesTheSlice",
    "RemembersRefusals",
    "SendsTheNewestFirstAfterARefusal",
    "SkipsUnencodableBatches",
    "StopsAtTheFirstRefusal",
    "TakesRowsOneByOne",
]


class SkipsUnencodableBatches(ReferenceSink):
    """Skips a batch that the encoder cannot encode."""

    def emit(self, rows: RowBatch) -> None:
        with contextlib.suppress(EncodeError):
            super().emit(rows)


class TakesRowsOneByOne(ReferenceSink):
    """Encodes and takes one row after the other, and stops at the bad one."""

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except EncodeError:
            for number in range(len(rows)):
                super().emit(rows.slice(number, 1))


class DiscardsAfterAnError(ReferenceSink):
    """Discards what it holds after any error, to be in a known state."""

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except EncodeError:
            self.forget()
            raise


class OpensBeforeItEncodes(ReferenceSink):
    """Starts a request before it knows that there is something to send."""

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except EncodeError:
            empty = Line(key=b"", value=b"", updated=None)
            self.partitions.append(self.context.topics().of(rows.schema.name), 0, [empty])
            raise


class AcceptsOnlyLaterRows(ReferenceSink):
    """Treats a row as repeated when it is not later than the last one of its key."""

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        latest = {line.key: line.updated for line in self.partitions.read(topic, partition) if line.updated}
        return [line for line in super().unwritten(topic, partition, lines) if _later(line, latest.get(line.key))]


class FlushesOncePerSlice(LateSink):
    """Leaves to the next `begin` or to `close` what the second `flush` of a slice must write."""

    done = False

    def begin(self, slice_: SliceInfo) -> None:
        self.write_late()
        super().begin(slice_)
        self.done = False

    def flush(self) -> Flushed:
        if self.done and self.buffer and not self.refused:
            return self.count_only()
        flushed = super().flush()
        self.done = True
        return flushed


class OverwritesTheSlice(ReferenceSink):
    """Names its output after the slice alone, so that each flush replaces the previous one."""

    flushes = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.flushes = 0
        self.ends = sizes(self.partitions)

    def flush(self) -> Flushed:
        if self.flushes and self.buffer:
            for (topic, partition), end in self.ends.items():
                cut(self.partitions, topic, partition, end)
        flushed = super().flush()
        self.flushes += flushed.messages > 0
        return flushed


class CountsTheSlice(ReferenceSink):
    """Counts all rows of the slice."""

    total = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.total = 0

    def flush(self) -> Flushed:
        flushed = super().flush()
        self.total += flushed.messages
        return dataclasses.replace(flushed, messages=self.total) if flushed.messages else flushed


class DropsLargeRows(ReferenceSink):
    """Drops rows that are too large."""

    def write(self) -> None:
        self.buffer = [place for place in self.buffer if value_bytes(place[2]) <= self.options.max_message_bytes]
        super().write()


class StopsAtTheFirstRefusal(ReferenceSink):
    """Stops writing at the first row that the destination refuses."""

    def flush(self) -> Flushed:
        if self.refused:
            unsent = self.buffer[self.refused[0].index :]
            self.buffer = self.buffer[: self.refused[0].index]
            self.messages += len(unsent)
        return super().flush()


class CountsRefusedRows(ReferenceSink):
    """Counts what was emitted."""

    def flush(self) -> Flushed:
        flushed = super().flush()
        return dataclasses.replace(flushed, messages=flushed.messages + len(flushed.refused))


class RemembersRefusals(ReferenceSink):
    """Begins no slice after one with refused rows."""

    any_refused = False

    def begin(self, slice_: SliceInfo) -> None:
        if self.any_refused:
            raise TerminalSinkError(f"{self.partitions.root} has refused rows; fix them")
        super().begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except RefusedRowsError:
            self.any_refused = True
            raise

    def flush(self) -> Flushed:
        self.any_refused |= bool(self.refused)
        try:
            return super().flush()
        except RefusedRowsError:
            self.any_refused = True
            raise


class LimitsErrors(ReferenceSink):
    """Ends the changefeed when there are more errors than its author expected."""

    errors = 0

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except RowError as error:
            self.count(1, error)
            raise

    def flush(self) -> Flushed:
        self.count(len(self.refused))
        try:
            return super().flush()
        except RowError as error:
            self.count(1, error)
            raise

    def count(self, errors: int, cause: RowError | None = None) -> None:
        self.errors += errors
        if self.errors >= 5:
            raise TerminalSinkError(f"{self.errors} rows were refused, which cannot be right; fix them") from cause


class KeepsTheRestOfARefusal(ReferenceSink):
    """Discards only the bad row when it refuses all rows together, and sends the others too."""

    def write(self) -> None:
        rest = [place for place in self.buffer if value_bytes(place[2]) <= self.options.max_message_bytes]
        try:
            super().write()
        except RefusedRowsError:
            self.buffer = rest
            raise


class SendsTheNewestFirstAfterARefusal(ReferenceSink):
    """Sends the newest row first when rows are emitted again."""

    behind = False

    def write(self) -> None:
        if self.behind:
            self.buffer.reverse()
        self.behind = False
        try:
            super().write()
        except RefusedRowsError:
            self.behind = True
            raise


class DeclaresNoRefusals(ReferenceSink):
    """Is registered with `refuses_rows=False`, for a destination that accepts every row."""


class NumbersFromOne(ReferenceSink):
    """Numbers refused rows from 1."""

    def flush(self) -> Flushed:
        self.refused = [dataclasses.replace(row, index=row.index + 1) for row in self.refused]
        return super().flush()


class ListsRefusedRowsTwice(ReferenceSink):
    """Lists refused rows when they are emitted, and again when the rest is written."""

    def flush(self) -> Flushed:
        self.refused *= 2
        return super().flush()


class NumbersWithinTheBatch(ReferenceSink):
    """Numbers refused rows within their batch, as its client does."""

    def emit(self, rows: RowBatch) -> None:
        self.emitted = 0
        super().emit(rows)


class NumbersFromBegin(ReferenceSink):
    """Numbers the rows of the whole slice."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.emitted = 0

    def flush(self) -> Flushed:
        emitted = self.emitted
        flushed = super().flush()
        self.emitted = emitted
        return flushed


def _later(line: Line, than: str | None) -> bool:
    return than is None or line.updated is None or Timestamp.parse(line.updated) > Timestamp.parse(than)
