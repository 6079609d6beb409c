"""Mistakes about rows that cannot be encoded or are refused, and about several flushes of a slice."""

from __future__ import annotations

import contextlib
import dataclasses

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import (
    EncodeError,
    Flushed,
    PartialWriteError,
    RefusedRowsError,
    RowBatch,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)

__all__ = [
    "CountsFromBegin",
    "CountsFromOne",
    "CountsTheAbandoned",
    "CountsTheRefused",
    "CountsTheSlice",
    "CountsWithinTheBatch",
    "DropsLargeRows",
    "FlushesOncePerSlice",
    "HurriesAfterARefusal",
    "KeepsTheRestOfARefusal",
    "LosesPatience",
    "NamesThemAgain",
    "OpensBeforeItEncodes",
    "RemembersRefusals",
    "SaysItRefusesNothing",
    "SkipsWhatCannotBeEncoded",
    "StartsOverAfterAnError",
    "StopsAtTheFirstRefusal",
    "TakesOnlyLaterRows",
    "TakesRowsOneByOne",
    "WritesTheSliceAnew",
]


class SkipsWhatCannotBeEncoded(ReferenceSink):
    """Goes on without a batch that the encoder cannot write."""

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


class StartsOverAfterAnError(ReferenceSink):
    """Throws away what it has when anything goes wrong, to be in a known state."""

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except EncodeError:
            self.forget()
            raise


class OpensBeforeItEncodes(ReferenceSink):
    """Begins a request, and then looks for something to put into it."""

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except EncodeError:
            empty = Line(key=b"", value=b"", updated=None)
            self.partitions.append(self.topic(rows.schema.name), 0, [empty])
            raise


class TakesOnlyLaterRows(ReferenceSink):
    """Knows a repeated row by being no later than the last of its key."""

    def unwritten(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        latest = {line.key: line.updated for line in self.partitions.read(topic, partition) if line.updated}
        return [line for line in super().unwritten(topic, partition, lines) if _later(line, latest.get(line.key))]


class FlushesOncePerSlice(ReferenceSink):
    """Takes a second flush of a slice for a formality, and leaves what came after the first to whatever is next."""

    done = False

    def begin(self, slice_: SliceInfo) -> None:
        self._catch_up()
        super().begin(slice_)
        self.done = False

    def flush(self) -> Flushed:
        if self.done and self.buffer:
            flushed = Flushed(messages=len(self.buffer))
            self.late = [*getattr(self, "late", []), *self.buffer]
            self.buffer, self.given = [], 0
            return flushed
        flushed = super().flush()
        self.done = True
        return flushed

    def close(self) -> None:
        self._catch_up()
        super().close()

    def _catch_up(self) -> None:
        self.buffer, self.late = getattr(self, "late", []), []
        if self.buffer:
            self.write()


class WritesTheSliceAnew(ReferenceSink):
    """Names what it writes by the slice alone, so that each flush takes the place of the one before."""

    flushes = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.flushes = 0
        self.ends = {
            (topic, partition): self.partitions.size(topic, partition)
            for topic in self.topics
            for partition in range(self.options.partitions)
        }

    def flush(self) -> Flushed:
        if self.flushes and self.buffer:
            for (topic, partition), end in self.ends.items():
                self.partitions.cut(topic, partition, end)
        flushed = super().flush()
        self.flushes += flushed.messages > 0
        return flushed


class CountsTheSlice(ReferenceSink):
    """Counts all that a slice has so far."""

    total = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.total = 0

    def flush(self) -> Flushed:
        flushed = super().flush()
        self.total += flushed.messages
        return dataclasses.replace(flushed, messages=self.total) if flushed.messages else flushed


class DropsLargeRows(ReferenceSink):
    """Leaves out what is too large, so that the rest can go on."""

    def write(self) -> None:
        most = self.options.max_message_bytes
        self.buffer = [place for place in self.buffer if len(place[2].value or b"") <= most]
        super().write()


class StopsAtTheFirstRefusal(ReferenceSink):
    """Leaves the rest unwritten when the destination refuses a row."""

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        self.buffer = self.buffer[:1]
        super().refuse(rows, failures)


class CountsTheRefused(ReferenceSink):
    """Counts what it was given."""

    refused = 0

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.refused = 0

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        self.refused += len(failures)
        super().refuse(rows, failures)

    def flush(self) -> Flushed:
        flushed = super().flush()
        refused, self.refused = self.refused, 0
        return dataclasses.replace(flushed, messages=flushed.messages + refused)


class RemembersRefusals(ReferenceSink):
    """Begins no slice after one with rows that were refused."""

    refusals = 0

    def begin(self, slice_: SliceInfo) -> None:
        if self.refusals:
            raise TerminalSinkError(f"{self.partitions.root} has refused rows; mend them")
        super().begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        try:
            super().emit(rows)
        except (EncodeError, PartialWriteError, RefusedRowsError) as error:
            self.note(error)
            raise

    def flush(self) -> Flushed:
        try:
            return super().flush()
        except (PartialWriteError, RefusedRowsError) as error:
            self.note(error)
            raise

    def note(self, error: Exception) -> None:
        self.refusals += not isinstance(error, EncodeError)


class LosesPatience(RemembersRefusals):
    """Gives up when there are more errors than anybody would expect."""

    errors = 0

    def note(self, error: Exception) -> None:
        self.errors += 1
        if self.errors >= 5:
            raise TerminalSinkError(f"{self.errors} rows were refused, which cannot be right; mend them") from error


class KeepsTheRestOfARefusal(ReferenceSink):
    """Throws away the bad row alone when all rows are refused together, and sends the others once more."""

    def write(self) -> None:
        most = self.options.max_message_bytes
        rest = [place for place in self.buffer if len(place[2].value or b"") <= most]
        try:
            super().write()
        except RefusedRowsError:
            self.buffer = rest
            raise


class HurriesAfterARefusal(ReferenceSink):
    """Begins with the newest of what it is given again, to be up to date soon."""

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


class SaysItRefusesNothing(ReferenceSink):
    """Was made for a destination that takes all, and then put before another."""

    refuses_rows = False


class CountsFromOne(ReferenceSink):
    """Numbers refused rows as people do."""

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        super().refuse(rows, [(number + 1, reason) for number, reason in failures])


class NamesThemAgain(ReferenceSink):
    """Sums up in `flush` what was refused."""

    told: tuple[tuple[int, str], ...] = ()

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.told = ()

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        self.told += tuple(failures)
        super().refuse(rows, failures)

    def flush(self) -> Flushed:
        flushed = super().flush()
        told, self.told = self.told, ()
        if told:
            self._flushed = flushed
            raise PartialWriteError(f"{len(told)} rows were refused", failures=told)
        return flushed


class CountsWithinTheBatch(ReferenceSink):
    """Says which rows of the batch are bad, as its client does."""

    def refuse(self, rows: RowBatch, failures: list[tuple[int, str]]) -> None:
        first = self.given - len(rows)
        super().refuse(rows, [(number - first, reason) for number, reason in failures])


class CountsFromBegin(ReferenceSink):
    """Counts the rows of the slice."""

    def flush(self) -> Flushed:
        given = self.given
        flushed = super().flush()
        self.given = given
        return flushed


class CountsTheAbandoned(ReferenceSink):
    """Begins to count when it has flushed, and not when it begins."""

    def begin(self, slice_: SliceInfo) -> None:
        given = self.given
        super().begin(slice_)
        self.given = given


def _later(line: Line, than: str | None) -> bool:
    return than is None or line.updated is None or Timestamp.parse(line.updated) > Timestamp.parse(than)
