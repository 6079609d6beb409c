"""Rangefeeds that plan, mark and read wrongly."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from cdc_conformance.sabotage.rangefeed_edits import Editor, Row, Tagged, edited, rebuilt, stamp, tagged, updated
from cdc_conformance.simulated.position import Position
from cdc_conformance.simulated.rangefeed import LogSlice, ScanSlice
from cdc_core import Mark, RowBatch, ScanProgress, Slice, Span, StepLimit, TerminalRangefeedError, Timestamp, Token

Items = list[RowBatch | Mark]


class IgnoresEmptyTables(Editor):
    """Has nothing to do while there are no rows."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if Position.from_token(start).scan is None and not _has_rows(self):
            return start
        return super().advance(start, after=after, limit=limit)


class CountsDown(Editor):
    """Tells what is left of the scan for what is done."""

    def scan_progress(self, token: Token) -> ScanProgress | None:
        found = super().scan_progress(token)
        return found and replace(found, done=found.total - found.done)


class GoesOnWithoutTheTable(Editor):
    """Takes the absence of a table for an absence of changes."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        try:
            return super().advance(start, after=after, limit=limit)
        except TerminalRangefeedError:
            return start


class MarksFirst(Editor):
    """Yields the marks of a slice before its rows."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        yield from sorted(super().read(slice_), key=lambda item: isinstance(item, RowBatch))


class MarksBelowTheLastRow(Editor):
    """Takes the time before the last row for how far a slice got."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        latest: dict[str, Timestamp] = {}
        for item in items:
            if isinstance(item, RowBatch):
                name = item.schema.name.full
                latest[name] = max(latest.get(name, Timestamp()), item.latest())
        return [
            replace(item, timestamp=min(item.timestamp, latest[item.span.table].prev()))
            if isinstance(item, Mark) and item.span.table in latest
            else item
            for item in items
        ]


class BeginsWhereTheLastStepEnded(Editor):
    """Has its intervals open at the wrong end: stamps the first row of a step with the end of the step before."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        return [replace(slice_, lower=slice_.lower.prev()) for slice_ in found]

    def log(self, payload: LogSlice, items: Items) -> Items:
        rows = [row for item in items if isinstance(item, RowBatch) for row in item.batch.to_pylist()]
        together = Counter(updated(row) for row in rows)
        first = payload.pieces[0].after

        def edit(found: list[Row]) -> list[Row]:
            if found and found[0] == rows[0] and together[updated(found[0])] == 1:
                times: Row = {name: stamp(first) for name in ("updated", "mvcc") if name in found[0]}
                return [{**found[0], **times}, *found[1:]]
            return found

        return edited(items, edit)


class BoundsTooHigh(Editor):
    """Takes the end of a slice for its beginning."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return [
            replace(slice_, lower=slice_.payload.pieces[0].upto) if isinstance(slice_.payload, LogSlice) else slice_
            for slice_ in super().slices(start, end, after=after)
        ]


class ResolvesAnewAfterARestart(Editor):
    """Begins to count resolved timestamps from the saved one in each run."""

    _planned = False

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        first, self._planned = not self._planned, True
        return tagged(found, "first") if first and isinstance(found[0].payload, LogSlice) else found

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        for item in super().read(replace(slice_, payload=slice_.payload.payload)):
            yield replace(item, timestamp=slice_.lower.prev().prev()) if isinstance(item, Mark) else item


class MarksWholeTables(Editor):
    """Says of a whole table what holds of a chunk."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return [replace(item, span=Span(item.span.table)) if isinstance(item, Mark) else item for item in items]


class ResolvesQuietTablesAhead(Editor):
    """Marks a table that rests, in a step with rows of others, as far as the source has got and not the step."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        cluster = self._cluster
        found = super().slices(start, end, after=after)
        pieces = [piece for slice_ in found if isinstance(slice_.payload, LogSlice) for piece in slice_.payload.pieces]
        busy = {
            piece.span.table
            for piece in pieces
            if any(cluster.tables[piece.span.table].changes(piece.span, after=piece.after, upto=piece.upto))
        }
        ahead = {name: str(cluster.resolved(name).high_water) for name in self._names if busy and name not in busy}
        return tagged(found, ahead) if pieces else found

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        ahead = slice_.payload.tag
        for item in super().read(replace(slice_, payload=slice_.payload.payload)):
            if isinstance(item, Mark) and item.span.table in ahead:
                item = replace(item, timestamp=max(item.timestamp, Timestamp.parse(ahead[item.span.table])))
            yield item


class ClockBeforeTheLastCommit(Editor):
    """Takes for the source's clock what is just below its last commit."""

    def now(self) -> Timestamp:
        return super().now().prev()


class ResolvesCommitsOnly(Editor):
    """Sees nothing more to do a little while after the last commit."""

    _idle = (Timestamp(), 0)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        position, high = Position.from_token(start), self._cluster.high
        at, times = self._idle
        if position.scan is None and position.frontier.high_water >= high and _has_rows(self):
            if at == high and times >= 2:
                return start
            end = super().advance(start, after=after, limit=limit)
            if end != start:
                self._idle = (high, times + 1 if at == high else 1)
            return end
        return super().advance(start, after=after, limit=limit)


class CountsItsTurns(Editor):
    """Puts into the token how often it was asked."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return {**super().advance(start, after=after, limit=limit), "turn": start.get("turn", 0) + 1}


class FillsUpWithTheFirstSlice(Editor):
    """Gives idle tasks something to do."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = list(super().slices(start, end, after=after))
        spare = self.context.parallelism - 2 if isinstance(found[0].payload, ScanSlice) else 0
        return [*found, *found[:1] * spare]


class UnlimitedRows(Editor):
    """Looks at the bytes of a step of the log only."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if Position.from_token(start).scan is None:
            limit = replace(limit, rows=sys.maxsize)
        return super().advance(start, after=after, limit=limit)


class UnlimitedBytes(Editor):
    """Looks at the rows of a step of the log only."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return super().advance(start, after=after, limit=replace(limit, bytes=sys.maxsize))


class ScansAtOnce(Editor):
    """Scans each table in one step."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if Position.from_token(start).scan is None:
            return super().advance(start, after=after, limit=limit)
        context = self.context
        try:
            self.context = replace(context, parallelism=sys.maxsize)
            return super().advance(start, after=after, limit=replace(limit, rows=sys.maxsize))
        finally:
            self.context = context


class OneBatchASlice(Editor):
    """Collects all rows of a slice before it hands them out."""

    def each(self, items: Items) -> Items:
        joined: Items = []
        for item in items:
            last = joined[-1] if joined else None
            if isinstance(item, RowBatch) and isinstance(last, RowBatch) and last.schema == item.schema:
                joined[-1] = rebuilt(last, [*last.batch.to_pylist(), *item.batch.to_pylist()])
            else:
                joined.append(item)
        return joined


class CarriesThingsAlong(Editor):
    """Puts into each slice all that it might need."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return tagged(super().slices(start, end, after=after), bytes(200_000))

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        yield from super().read(replace(slice_, payload=slice_.payload.payload))


class ReadsUpToNow(Editor):
    """Reads the log to its end, wherever the step ends."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        return tagged(found, str(self._cluster.high)) if isinstance(found[0].payload, LogSlice) else found

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        pieces = slice_.payload.payload.pieces
        planned, now = Timestamp.parse(slice_.payload.tag), self._cluster.high
        later = [replace(piece, after=max(planned, piece.upto), upto=now) for piece in pieces if now > planned]
        for further in (later, pieces):
            for item in super().read(replace(slice_, payload=LogSlice(pieces=tuple(further)))):
                if isinstance(item, RowBatch) or further is pieces:
                    yield item


class RemembersItsSlices(Editor):
    """Keeps what a slice stands for in the process that planned it."""

    _payloads: ClassVar[list[Any]] = []

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        self._payloads.extend(slice_.payload for slice_ in found)
        first = len(self._payloads) - len(found)
        return [replace(slice_, payload=first + place) for place, slice_ in enumerate(found)]

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        yield from super().read(replace(slice_, payload=self._payloads[slice_.payload]))


class GoesOnWhereItWasLeft(Editor):
    """Keeps its cursor when a reader goes away."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        kept: dict[Any, Iterator[RowBatch | Mark]] = self.__dict__.setdefault("_kept", {})
        key = repr(slice_)
        items = kept.pop(key, None) or super().read(slice_)
        kept[key] = items
        yield from _one_by_one(items)
        del kept[key]


class PlansOn(Editor):
    """Begins a step where the last one that it planned ended, whatever became of that."""

    _ended: Token | None = None

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        begin, self._ended = self._ended or start, end
        return super().slices(begin, end, after=after)


def _has_rows(rangefeed: Editor) -> bool:
    cluster = rangefeed._cluster
    tables = [cluster.tables[name] for name in rangefeed._names if name in cluster.tables]
    return any(True for table in tables for _ in cluster.rows(table, cluster.high))


def _one_by_one(items: Iterator[RowBatch | Mark]) -> Iterator[RowBatch | Mark]:
    """Yield from *items* without closing them when nobody wants more."""
    while (item := next(items, None)) is not None:
        yield item
