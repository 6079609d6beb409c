"""Mistakes about rows that cannot be encoded or are refused, and about several flushes of a slice."""

from __future__ import annotations

import contextlib
import dataclasses

from cdc_conformance.reference.partitions import Line
from cdc_conformance.reference.sink import ReferenceSink
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_sinks.tampering import LateSink, WatchedSink, cut, sizes, value_bytes
from cdc_core import EncodeError, Flushed, RefusedRowsError, RowBatch, RowError, SliceInfo, TerminalSinkError, Timestamp


@mistakes
class Refusals(WatchedSink):
    @breaks("test_emit_passes_on_encode_errors", "emit")
    def skips_unencodable_batches(self, rows: RowBatch) -> None:
        """Skips a batch that the encoder cannot encode."""
        with contextlib.suppress(EncodeError):
            super().emit(rows)

    @breaks("test_emit_takes_nothing_of_a_batch_that_cannot_be_encoded", "emit")
    def takes_rows_one_by_one(self, rows: RowBatch) -> None:
        """Encodes and takes one row after the other, and stops at the bad one."""
        try:
            super().emit(rows)
        except EncodeError:
            for number in range(len(rows)):
                super().emit(rows.slice(number, 1))

    @breaks("test_a_sink_works_after_an_encode_error", "emit")
    def discards_after_an_error(self, rows: RowBatch) -> None:
        """Discards what it holds after any error, to be in a known state."""
        try:
            super().emit(rows)
        except EncodeError:
            self.forget()
            raise

    @breaks("test_a_slice_of_bad_rows_writes_nothing", "emit")
    def opens_before_it_encodes(self, rows: RowBatch) -> None:
        """Starts a request before it knows that there is something to send."""
        try:
            super().emit(rows)
        except EncodeError:
            empty = Line(key=b"", value=b"", updated=None)
            self.partitions.append(self.context.topics().of(rows.schema.name), 0, [empty])
            raise

    @breaks("test_replayed_dead_letters_arrive_although_they_are_old", "unwritten")
    def accepts_only_later_rows(self, topic: str, partition: int, lines: list[Line]) -> list[Line]:
        """Treats a row as repeated when it is not later than the last one of its key."""
        latest = {line.key: line.updated for line in self.partitions.read(topic, partition) if line.updated}
        return [line for line in super().unwritten(topic, partition, lines) if _later(line, latest.get(line.key))]

    @breaks("test_each_flush_counts_only_new_rows", "flush")
    def counts_the_slice(self) -> Flushed:
        """Counts all rows of the slice."""
        flushed = super().flush()
        return dataclasses.replace(flushed, messages=self.total) if flushed.messages else flushed

    @breaks("test_a_bad_row_is_reported_as_refused", "write")
    def drops_large_rows(self) -> None:
        """Drops rows that are too large."""
        self.buffer = [place for place in self.buffer if value_bytes(place[2]) <= self.options.max_message_bytes]
        super().write()

    @breaks("test_rows_beside_refused_ones_are_durable", "flush")
    def stops_at_the_first_refusal(self) -> Flushed:
        """Stops writing at the first row that the destination refuses."""
        if self.refused:
            unsent = self.buffer[self.refused[0].index :]
            self.buffer = self.buffer[: self.refused[0].index]
            self.messages += len(unsent)
        return super().flush()

    @breaks("test_rows_beside_refused_ones_are_counted", "flush")
    def counts_refused_rows(self) -> Flushed:
        """Counts what was emitted."""
        flushed = super().flush()
        return dataclasses.replace(flushed, messages=flushed.messages + len(flushed.refused))

    @breaks("test_refusing_all_rows_together_forgets_them", "write")
    def keeps_the_rest_of_a_refusal(self) -> None:
        """Discards only the bad row when it refuses all rows together, and sends the others too."""
        rest = [place for place in self.buffer if value_bytes(place[2]) <= self.options.max_message_bytes]
        try:
            super().write()
        except RefusedRowsError:
            self.buffer = rest
            raise

    @breaks("test_versions_of_a_key_stay_in_order_around_a_refused_one", "write")
    def sends_the_newest_first_after_a_refusal(self) -> None:
        """Sends the newest row first when rows are emitted again."""
        if self.known.pop("behind", False):
            self.buffer.reverse()
        try:
            super().write()
        except RefusedRowsError:
            self.known["behind"] = True
            raise

    @breaks("test_flush_lists_exactly_the_refused_rows", "flush")
    def numbers_from_one(self) -> Flushed:
        """Numbers refused rows from 1."""
        self.refused = [dataclasses.replace(row, index=row.index + 1) for row in self.refused]
        return super().flush()

    @breaks("test_a_refused_row_is_listed_once", "flush")
    def lists_refused_rows_twice(self) -> Flushed:
        """Lists refused rows when they are emitted, and again when the rest is written."""
        self.refused *= 2
        return super().flush()

    @breaks("test_refused_rows_are_numbered_across_batches", "emit")
    def numbers_within_the_batch(self, rows: RowBatch) -> None:
        """Numbers refused rows within their batch, as its client does."""
        self.emitted = 0
        super().emit(rows)


@breaks("test_a_sink_that_refuses_rows_declares_it", refuses_rows=False)
class DeclaresNoRefusals(ReferenceSink):
    """Is registered with `refuses_rows=False`, for a destination that accepts every row."""


@breaks("test_every_flush_of_a_slice_is_a_barrier")
class FlushesOncePerSlice(LateSink):
    """Leaves to the next `begin` or to `close` what the second `flush` of a slice must write."""

    def begin(self, slice_: SliceInfo) -> None:
        self.write_late()
        super().begin(slice_)

    def flush(self) -> Flushed:
        return self.count_only() if self.flushes and self.buffer and not self.refused else super().flush()


@breaks("test_several_flushes_of_a_slice_overwrite_nothing")
class OverwritesTheSlice(WatchedSink):
    """Names its output after the slice alone, so that each flush replaces the previous one."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.ends = sizes(self.partitions)

    def flush(self) -> Flushed:
        if self.total and self.buffer:
            for (topic, partition), end in self.ends.items():
                cut(self.partitions, topic, partition, end)
        return super().flush()


@breaks("test_a_sink_works_after_a_refusal")
class RemembersRefusals(ReferenceSink):
    """Begins no slice after one with refused rows."""

    any_refused = False

    def begin(self, slice_: SliceInfo) -> None:
        if self.any_refused:
            raise TerminalSinkError(f"{self.partitions.root} has refused rows; fix them")
        super().begin(slice_)

    def forget(self) -> None:
        self.any_refused |= bool(self.refused or self.buffer)
        super().forget()


@breaks("test_bad_rows_become_dead_letters_and_all_others_arrive")
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


@breaks("test_each_flush_restarts_the_numbering_of_rows")
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
