"""Rangefeeds that plan wrongly.

A mistake that needs a planner and a reader is in two methods: the planner has the name of the mistake.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_rangefeeds.concurrency import committed
from cdc_conformance.sabotage.broken_rangefeeds.parts import (
    LIVE,
    BrokenHistory,
    BrokenPlanner,
    BrokenReader,
    Items,
    Row,
    edited,
    stamp,
    tagged,
    updated_of,
)
from cdc_conformance.simulated import log_steps
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.log_steps import reached_boundary
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_conformance.simulated.source import LogSlice, Piece, ScanSlice, SimulatedToken
from cdc_core import (
    RangefeedContext,
    Rescan,
    RetryableRangefeedError,
    RowBatch,
    SchemaChangeRules,
    Slice,
    SpanMark,
    StepLimit,
    TerminalRangefeedError,
    Timestamp,
    Token,
)

_payloads: list[Any] = []
_cursors: dict[str, Iterator[RowBatch | SpanMark]] = {}


@mistakes
class Steps(BrokenPlanner):
    found: TerminalRangefeedError | None = None
    idle = (Timestamp(), 0)
    closed = False

    @breaks("test_empty_tables_are_resolved", "advance")
    def ignores_empty_tables(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Plans no step while all tables are empty."""
        if SimulatedToken.from_token(start).scan is None and not self.has_rows():
            return start
        return super().advance(start, after=after, limit=limit)

    @breaks("test_a_dropped_table_stops_the_changefeed", "advance")
    def ignores_dropped_tables(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Treats a dropped table like a table without changes."""
        try:
            return super().advance(start, after=after, limit=limit)
        except TerminalRangefeedError:
            if all(name in self.source.cluster.tables for name in self.source.names):
                raise
            return start

    @breaks(f"{LIVE}[clock_behind_commits]", "now")
    def clock_behind_the_last_commit(self) -> Timestamp:
        """Returns a time just below the last commit as the source's clock."""
        return super().now().prev()

    @breaks("test_an_outage_is_a_retryable_error", "now")
    def treats_outages_as_fatal(self) -> Timestamp:
        """Raises a TerminalRangefeedError while the source is unreachable."""
        try:
            return super().now()
        except RetryableRangefeedError as error:
            raise TerminalRangefeedError(str(error)) from error

    @breaks("test_an_idle_source_keeps_resolving", "advance")
    def stops_resolving_when_idle(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Plans no more steps some time after the last commit."""
        token, high = SimulatedToken.from_token(start), self.source.cluster.high
        if token.scan is not None or token.frontier.high_water < high or not self.has_rows():
            return super().advance(start, after=after, limit=limit)
        times = self.idle[1] if self.idle[0] == high else 0
        end = start if times >= 2 else super().advance(start, after=after, limit=limit)
        if end != start:
            self.idle = (high, times + 1)
        return end

    @breaks("test_advance_returns_its_start_when_idle", "advance")
    def counts_calls_in_the_token(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Counts the calls of `advance` in the token."""
        return {**super().advance(start, after=after, limit=limit), "turn": start.get("turn", 0) + 1}

    @breaks("test_log_steps_obey_the_row_limit", "advance")
    def ignores_the_row_limit(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Limits steps of the log by bytes only."""
        if SimulatedToken.from_token(start).scan is None:
            limit = replace(limit, rows=sys.maxsize)
        return super().advance(start, after=after, limit=limit)

    @breaks("test_log_steps_obey_the_byte_limit", "advance")
    def ignores_the_byte_limit(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Limits steps of the log by rows only."""
        return super().advance(start, after=after, limit=replace(limit, bytes=sys.maxsize))

    @breaks("test_scan_steps_obey_the_row_limit", "advance")
    def scans_in_one_step(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Scans each table in one step."""
        if SimulatedToken.from_token(start).scan is None:
            return super().advance(start, after=after, limit=limit)
        context = self.context
        try:
            self.context = replace(context, parallelism=sys.maxsize)
            return super().advance(start, after=after, limit=replace(limit, rows=sys.maxsize))
        finally:
            self.context = context

    @breaks("test_tokens_are_plain_json", "advance")
    def tuples_in_tokens(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Puts a tuple into its tokens, which JSON turns into a list."""
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "names": tuple(self.source.names)}

    @breaks("test_tokens_hold_no_secrets", "advance")
    def uri_in_tokens(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Puts the source's URI into its tokens."""
        end = super().advance(start, after=after, limit=limit)
        return start if end is start else {**end, "source": self.context.uri}

    @breaks("test_only_release_discards_history", "advance")
    def releases_in_advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Releases the history before the start of each step that it plans."""
        BrokenHistory(self.context).release(start)
        return super().advance(start, after=after, limit=limit)

    @breaks("test_a_rescan_with_a_predicate_yields_the_rows_that_it_selects", "scan_again")
    def ignores_predicates(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        """Reads all rows of the table, whatever the predicate says."""
        return super().scan_again(start, [replace(rescan, where=None) for rescan in rescans])

    @breaks("test_policy_stop_ends_the_changefeed_at_the_change", "advance")
    def stops_one_step_late(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Looks for schema changes after it has planned the step that passes them."""
        if self.found is not None:
            raise self.found
        try:
            return super().advance(start, after=after, limit=limit)
        except TerminalRangefeedError as error:
            self.found = error
            self.context = replace(self.context, schema_changes=SchemaChangeRules(policy="nobackfill"))
            return super().advance(start, after=after, limit=limit)

    @breaks("test_policy_nobackfill_yields_no_rows_for_the_change", "__init__")
    def backfills_unasked(self, context: RangefeedContext) -> None:
        """Backfills with the policy "nobackfill" too."""
        rules = context.schema_changes
        policy = "backfill" if rules.policy == "nobackfill" else rules.policy
        super().__init__(replace(context, schema_changes=replace(rules, policy=policy)))

    @breaks("test_schema_change_events_select_the_changes", "__init__")
    def backfills_for_every_change(self, context: RangefeedContext) -> None:
        """Backfills when a column was added that is null in every row."""
        rules = replace(context.schema_changes, events="column_changes")
        super().__init__(replace(context, schema_changes=rules))

    @breaks("test_close_may_be_called_twice", "close")
    def closes_once(self) -> None:
        """Cannot be closed twice."""
        if self.closed:
            raise TerminalRangefeedError("this planner is closed")
        self.closed = True
        super().close()


@mistakes
class Slices(BrokenPlanner):
    planned = False

    @breaks(f"{LIVE}[last_end_included]", "slices")
    def includes_the_last_steps_end(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Uses intervals that include their start: a step's first row gets the timestamp of the last step's end."""
        return [replace(slice_, lower=slice_.lower.prev()) for slice_ in super().slices(start, end, after=after)]

    @breaks(f"{LIVE}[end_as_lower_bound]", "slices")
    def uses_the_end_as_lower_bound(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Uses the end of a slice as its lower bound."""
        return [
            replace(slice_, lower=slice_.payload.pieces[0].upto) if isinstance(slice_.payload, LogSlice) else slice_
            for slice_ in super().slices(start, end, after=after)
        ]

    @breaks(f"{LIVE}[marks_back_after_a_restart]", "slices")
    def resolves_backwards_after_a_restart(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Counts resolved timestamps from the saved one again in each attempt that begins without rows."""
        found = super().slices(start, end, after=after)
        first, self.planned = not self.planned, True
        return tagged(found, "first") if first and isinstance(found[0].payload, LogSlice) else found

    @breaks(f"{LIVE}[idle_tables_ahead]", "slices")
    def resolves_idle_tables_ahead(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Marks a table without rows in a step as far as the source has come, beyond the end of the step."""
        cluster = self.source.cluster
        found = super().slices(start, end, after=after)
        pieces = [piece for slice_ in found if isinstance(slice_.payload, LogSlice) for piece in slice_.payload.pieces]
        busy = {piece.span.table for piece in pieces if any(_changes(cluster, piece))}
        names = self.source.names
        ahead = {name: str(cluster.resolved(name).high_water) for name in names if busy and name not in busy}
        return tagged(found, ahead) if pieces else found

    @breaks("test_no_key_is_in_two_slices_of_a_step", "slices")
    def repeats_the_first_slice(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Gives idle tasks the first slice again."""
        found = list(super().slices(start, end, after=after))
        spare = self.context.parallelism - 2 if isinstance(found[0].payload, ScanSlice) else 0
        return [*found, *found[:1] * spare]

    @breaks("test_slices_are_small", "slices")
    def sends_large_slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Puts everything that a reader may need into each slice."""
        return tagged(super().slices(start, end, after=after), bytes(200_000))

    @breaks(f"{LIVE}[reads_up_to_now]", "slices")
    def reads_up_to_now(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Reads the log to its end, beyond the end of the step."""
        return tagged(super().slices(start, end, after=after), str(self.source.cluster.high))

    @breaks("test_a_slice_can_be_read_in_another_process", "slices")
    def keeps_slices_in_its_process(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Keeps the contents of slices in the memory of the process that planned them."""
        found = super().slices(start, end, after=after)
        first = len(_payloads)
        _payloads.extend(slice_.payload for slice_ in found)
        return [replace(slice_, payload=first + place) for place, slice_ in enumerate(found)]


@mistakes
class Reading(BrokenReader):
    @breaks(f"{LIVE}[last_end_included]", "log")
    def includes_the_last_steps_end_reader(self, items: Items) -> Items:
        """The reader of `IncludesTheLastStepsEnd`."""
        if self.context.cursor is not None:  # the engine leaves out rows at the cursor
            return items
        rows = [row for item in items if isinstance(item, RowBatch) for row in item.batch.to_pylist()]
        together = Counter(map(updated_of, rows))
        first = self.slice_.payload.pieces[0].after

        def edit(found: list[Row]) -> list[Row]:
            if found and found[0] == rows[0] and together[updated_of(found[0])] == 1:
                times: Row = {name: stamp(first) for name in ("updated", "mvcc") if name in found[0]}
                return [{**found[0], **times}, *found[1:]]
            return found

        return edited(items, edit)

    @breaks(f"{LIVE}[marks_back_after_a_restart]", "log")
    def resolves_backwards_after_a_restart_reader(self, items: Items) -> Items:
        """The reader of `ResolvesBackwardsAfterARestart`."""
        idle = self.tag and all(isinstance(item, SpanMark) for item in items)
        at = self.slice_.lower.prev().prev()
        return [replace(item, timestamp=at) if idle and isinstance(item, SpanMark) else item for item in items]

    @breaks(f"{LIVE}[idle_tables_ahead]", "log")
    def resolves_idle_tables_ahead_reader(self, items: Items) -> Items:
        """The reader of `ResolvesIdleTablesAhead`."""
        return [
            replace(item, timestamp=max(item.timestamp, Timestamp.parse(self.tag[item.span.table])))
            if isinstance(item, SpanMark) and item.span.table in self.tag
            else item
            for item in items
        ]

    @breaks(f"{LIVE}[reads_up_to_now]", "log")
    def reads_up_to_now_reader(self, items: Items) -> Items:
        """The reader of `ReadsUpToNow`."""
        payload: LogSlice = self.slice_.payload
        committed(self.source)
        planned, now = Timestamp.parse(self.tag), self.source.cluster.high
        later = [replace(piece, after=max(planned, piece.upto), upto=now) for piece in payload.pieces if now > planned]
        slice_ = replace(self.slice_, payload=replace(payload, pieces=tuple(later)))
        return [*(item for item in SimulatedReader.read(self, slice_) if isinstance(item, RowBatch)), *items]

    @breaks("test_a_slice_can_be_read_in_another_process", "read")
    def keeps_slices_in_its_process_reader(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """The reader of `KeepsSlicesInItsProcess`."""
        yield from super().read(replace(slice_, payload=_payloads[slice_.payload]))

    @breaks("test_an_abandoned_read_can_be_repeated", "read")
    def continues_abandoned_reads(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """Keeps the cursor of an abandoned read in the process."""
        key = repr(slice_)
        items = _cursors.pop(key, None) or super().read(slice_)
        try:
            while (item := next(items, None)) is not None:  # does not close it when the caller stops
                yield item
        except GeneratorExit:
            _cursors[key] = items
            raise


@breaks("test_slices_are_small")
class SendsLargeSlicesReader(BrokenReader):
    """The reader of `SendsLargeSlices`."""


@breaks("test_a_step_can_be_planned_again")
class ContinuesFromItsLastPlan(BrokenPlanner):
    """Begins each step where its last plan ended, also if that step was never read."""

    ended: Token | None = None

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        begin, self.ended = self.ended or start, end
        return super().slices(begin, end, after=after)

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        self.ended = None
        return super().scan_again(start, rescans)


@breaks("test_a_schema_change_of_an_idle_table_is_noticed")
class NoticesIdleTablesOneStepLate(BrokenPlanner):
    """Looks for schema changes only in steps with rows: another step passes them, and the next one begins the backfill.

    The policy is "backfill".
    """

    late: Sequence[Rescan] = ()
    begin: tuple[Token, Token] | None = None

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if self.late:
            again = self.scan_again(start, self.late)
            assert again is not None
            self.begin, self.late = (start, again), ()
        end = super().advance(self.begun(start), after=after, limit=limit)
        first, last = SimulatedToken.from_token(self.begun(start)), SimulatedToken.from_token(end)
        cluster, rules = self.source.cluster, self.context.schema_changes
        boundary = reached_boundary(cluster, last.frontier) if last.scan is None and last.again is None else None
        if boundary is None or first.scan is not None or rules.policy != "backfill":
            return end
        passed = log_steps.advanced(cluster, boundary.passed(last.frontier), limit)
        moved = log_steps.pieces(cluster, first.frontier, passed, self.context.placement)
        if any(True for piece in moved for _ in _changes(cluster, piece)):
            return end
        tables = rules.tables_to_read_again(boundary.changes, resolved=last.frontier.high_water)
        self.late = [Rescan(table=table) for table in tables]
        return replace(last, frontier=passed).to_token()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return super().slices(self.begun(start), end, after=after)

    def begun(self, start: Token) -> Token:
        return self.begin[1] if self.begin is not None and self.begin[0] == start else start


def _changes(cluster: Cluster, piece: Piece) -> Iterable[object]:
    return cluster.tables[piece.span.table].changes(piece.span, after=piece.after, upto=piece.upto)
