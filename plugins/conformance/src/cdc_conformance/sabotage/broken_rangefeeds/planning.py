"""Rangefeeds that plan, mark and read wrongly.

A mistake that needs a planner and a reader is in two classes: the planner has the name of the mistake.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from cdc_conformance.sabotage.broken_rangefeeds.edits import Items, Row, edited, rebuilt, stamp, updated_of
from cdc_conformance.sabotage.broken_rangefeeds.parts import (
    BrokenPlanner,
    BrokenRangefeed,
    BrokenReader,
    Tagged,
    tagged,
)
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_conformance.simulated.tokens import SimulatedToken
from cdc_core import (
    Rescan,
    RowBatch,
    ScanProgress,
    Slice,
    Span,
    SpanMark,
    StepLimit,
    TerminalRangefeedError,
    Timestamp,
    Token,
)


class IgnoresEmptyTables(BrokenPlanner):
    """Plans no step while all tables are empty."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if SimulatedToken.from_token(start).scan is None and not _has_rows(self):
            return start
        return super().advance(start, after=after, limit=limit)


class CountsDown(BrokenRangefeed):
    """Reports the rest of the scan as done."""

    def scan_progress(self, token: Token) -> ScanProgress | None:
        found = super().scan_progress(token)
        return found and replace(found, done=found.total - found.done)


class IgnoresDroppedTables(BrokenPlanner):
    """Treats a dropped table like a table without changes."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        try:
            return super().advance(start, after=after, limit=limit)
        except TerminalRangefeedError:
            if all(name in self.source.cluster.tables for name in self.source.names):
                raise
            return start


class YieldsMarksFirst(BrokenReader):
    """Yields the marks of a slice before its rows."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        yield from sorted(super().read(slice_), key=lambda item: isinstance(item, RowBatch))


class MarksBelowTheLastRow(BrokenReader):
    """Marks a span just below its last row."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        latest: dict[str, Timestamp] = {}
        for item in items:
            if isinstance(item, RowBatch):
                name = item.schema.name.full
                latest[name] = max(latest.get(name, Timestamp()), item.latest())
        return [
            replace(item, timestamp=min(item.timestamp, latest[item.span.table].prev()))
            if isinstance(item, SpanMark) and item.span.table in latest
            else item
            for item in items
        ]


class IncludesTheLastStepsEnd(BrokenPlanner):
    """Uses intervals that include their start: the first row of a step gets the timestamp of the last step's end."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        return [replace(slice_, lower=slice_.lower.prev()) for slice_ in found]


class IncludesTheLastStepsEndReader(BrokenReader):
    """The reader of `IncludesTheLastStepsEnd`."""

    def log(self, payload: LogSlice, items: Items) -> Items:
        if self.context.cursor is not None:  # the engine leaves out rows at the cursor
            return items
        rows = [row for item in items if isinstance(item, RowBatch) for row in item.batch.to_pylist()]
        together = Counter(updated_of(row) for row in rows)
        first = payload.pieces[0].after

        def edit(found: list[Row]) -> list[Row]:
            if found and found[0] == rows[0] and together[updated_of(found[0])] == 1:
                times: Row = {name: stamp(first) for name in ("updated", "mvcc") if name in found[0]}
                return [{**found[0], **times}, *found[1:]]
            return found

        return edited(items, edit)


class UsesTheEndAsLowerBound(BrokenPlanner):
    """Uses the end of a slice as its lower bound."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return [
            replace(slice_, lower=slice_.payload.pieces[0].upto) if isinstance(slice_.payload, LogSlice) else slice_
            for slice_ in super().slices(start, end, after=after)
        ]


class ResolvesBackwardsAfterARestart(BrokenPlanner):
    """Counts resolved timestamps from the saved one again in each attempt."""

    _planned = False

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        first, self._planned = not self._planned, True
        return tagged(found, "first") if first and isinstance(found[0].payload, LogSlice) else found


class ResolvesBackwardsAfterARestartReader(BrokenReader):
    """The reader of `ResolvesBackwardsAfterARestart`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        for item in super().read(replace(slice_, payload=slice_.payload.payload)):
            yield replace(item, timestamp=slice_.lower.prev().prev()) if isinstance(item, SpanMark) else item


class MarksWholeTables(BrokenReader):
    """Marks the whole table after each chunk."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return [replace(item, span=Span(item.span.table)) if isinstance(item, SpanMark) else item for item in items]


class ResolvesIdleTablesAhead(BrokenPlanner):
    """Marks a table without rows in a step as far as the source has got, beyond the end of the step."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        cluster = self.source.cluster
        found = super().slices(start, end, after=after)
        pieces = [piece for slice_ in found if isinstance(slice_.payload, LogSlice) for piece in slice_.payload.pieces]
        busy = {
            piece.span.table
            for piece in pieces
            if any(cluster.tables[piece.span.table].changes(piece.span, after=piece.after, upto=piece.upto))
        }
        names = self.source.names
        ahead = {name: str(cluster.resolved(name).high_water) for name in names if busy and name not in busy}
        return tagged(found, ahead) if pieces else found


class ResolvesIdleTablesAheadReader(BrokenReader):
    """The reader of `ResolvesIdleTablesAhead`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        ahead = slice_.payload.tag
        for item in super().read(replace(slice_, payload=slice_.payload.payload)):
            if isinstance(item, SpanMark) and item.span.table in ahead:
                item = replace(item, timestamp=max(item.timestamp, Timestamp.parse(ahead[item.span.table])))
            yield item


class ClockBehindTheLastCommit(BrokenPlanner):
    """Returns a time just below the last commit as the source's clock."""

    def now(self) -> Timestamp:
        return super().now().prev()


class StopsResolvingWhenIdle(BrokenPlanner):
    """Plans no more steps some time after the last commit."""

    _idle = (Timestamp(), 0)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        token, high = SimulatedToken.from_token(start), self.source.cluster.high
        at, times = self._idle
        if token.scan is None and token.frontier.high_water >= high and _has_rows(self):
            if at == high and times >= 2:
                return start
            end = super().advance(start, after=after, limit=limit)
            if end != start:
                self._idle = (high, times + 1 if at == high else 1)
            return end
        return super().advance(start, after=after, limit=limit)


class CountsCallsInTheToken(BrokenPlanner):
    """Counts the calls of `advance` in the token."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return {**super().advance(start, after=after, limit=limit), "turn": start.get("turn", 0) + 1}


class RepeatsTheFirstSlice(BrokenPlanner):
    """Gives idle tasks the first slice again."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = list(super().slices(start, end, after=after))
        spare = self.context.parallelism - 2 if isinstance(found[0].payload, ScanSlice) else 0
        return [*found, *found[:1] * spare]


class IgnoresTheRowLimit(BrokenPlanner):
    """Limits steps of the log by bytes only."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if SimulatedToken.from_token(start).scan is None:
            limit = replace(limit, rows=sys.maxsize)
        return super().advance(start, after=after, limit=limit)


class IgnoresTheByteLimit(BrokenPlanner):
    """Limits steps of the log by rows only."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return super().advance(start, after=after, limit=replace(limit, bytes=sys.maxsize))


class ScansInOneStep(BrokenPlanner):
    """Scans each table in one step."""

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if SimulatedToken.from_token(start).scan is None:
            return super().advance(start, after=after, limit=limit)
        context = self.context
        try:
            self.context = replace(context, parallelism=sys.maxsize)
            return super().advance(start, after=after, limit=replace(limit, rows=sys.maxsize))
        finally:
            self.context = context


class YieldsOneBatchPerSlice(BrokenReader):
    """Collects all rows of a slice before it yields them."""

    def each(self, items: Items) -> Items:
        joined: Items = []
        for item in items:
            last = joined[-1] if joined else None
            if isinstance(item, RowBatch) and isinstance(last, RowBatch) and last.schema == item.schema:
                joined[-1] = rebuilt(last, [*last.batch.to_pylist(), *item.batch.to_pylist()])
            else:
                joined.append(item)
        return joined


class SendsLargeSlices(BrokenPlanner):
    """Puts everything that a reader may need into each slice."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return tagged(super().slices(start, end, after=after), bytes(200_000))


class SendsLargeSlicesReader(BrokenReader):
    """The reader of `SendsLargeSlices`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        yield from super().read(replace(slice_, payload=slice_.payload.payload))


class ReadsUpToNow(BrokenPlanner):
    """Reads the log to its end, beyond the end of the step."""

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        return tagged(found, str(self.source.cluster.high)) if isinstance(found[0].payload, LogSlice) else found


class ReadsUpToNowReader(BrokenReader):
    """The reader of `ReadsUpToNow`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        if not isinstance(slice_.payload, Tagged):
            yield from super().read(slice_)
            return
        payload = slice_.payload.payload
        pieces = payload.pieces
        planned, now = Timestamp.parse(slice_.payload.tag), self.source.cluster.high
        later = [replace(piece, after=max(planned, piece.upto), upto=now) for piece in pieces if now > planned]
        for further in (later, pieces):
            for item in super().read(replace(slice_, payload=replace(payload, pieces=tuple(further)))):
                if isinstance(item, RowBatch) or further is pieces:
                    yield item


class KeepsSlicesInItsProcess(BrokenPlanner):
    """Keeps the contents of slices in the memory of the process that planned them."""

    payloads: ClassVar[list[Any]] = []

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = super().slices(start, end, after=after)
        self.payloads.extend(slice_.payload for slice_ in found)
        first = len(self.payloads) - len(found)
        return [replace(slice_, payload=first + place) for place, slice_ in enumerate(found)]


class KeepsSlicesInItsProcessReader(BrokenReader):
    """The reader of `KeepsSlicesInItsProcess`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        yield from super().read(replace(slice_, payload=KeepsSlicesInItsProcess.payloads[slice_.payload]))


class ContinuesAbandonedReads(BrokenReader):
    """Keeps the cursor of an abandoned read in the process."""

    _cursors: ClassVar[dict[str, Iterator[RowBatch | SpanMark]]] = {}

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        key = repr(slice_)
        items = self._cursors.pop(key, None) or super().read(slice_)
        try:
            yield from _one_by_one(items)
        except GeneratorExit:
            self._cursors[key] = items
            raise


class ContinuesFromItsLastPlan(BrokenPlanner):
    """Begins each step where its last plan ended, also if that step was never read."""

    _ended: Token | None = None

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        begin, self._ended = self._ended or start, end
        return super().slices(begin, end, after=after)

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        self._ended = None
        return super().scan_again(start, rescans)


def _has_rows(planner: BrokenPlanner) -> bool:
    cluster = planner.source.cluster
    tables = [cluster.tables[name] for name in planner.source.names if name in cluster.tables]
    return any(True for table in tables for _ in cluster.rows(table, cluster.high))


def _one_by_one(items: Iterator[RowBatch | SpanMark]) -> Iterator[RowBatch | SpanMark]:
    """Yield from *items*, but do not close them when the caller stops."""
    while (item := next(items, None)) is not None:
        yield item
