"""Rangefeeds that are wrong at schema boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cdc_conformance.sabotage.broken_rangefeeds.edits import Items, edited, rebuilt, stamp
from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenPlanner, BrokenRangefeed, BrokenReader
from cdc_conformance.simulated import log_steps
from cdc_conformance.simulated.boundaries import reached_boundary
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.slices import Piece, ScanSlice
from cdc_conformance.simulated.tokens import SimulatedToken
from cdc_core import (
    RangefeedContext,
    Rescan,
    RowBatch,
    SchemaChangeRules,
    Slice,
    Span,
    SpanMark,
    StepLimit,
    TerminalRangefeedError,
    Timestamp,
    Token,
)


class ResolvesBeforeTheBackfillIsComplete(BrokenReader):
    """Marks the whole table after each chunk of a backfill."""

    def backfill(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return [replace(item, span=Span(item.span.table)) if isinstance(item, SpanMark) else item for item in items]


class BackfillsWhatTheInitialScanRead(BrokenReader):
    """Divides a backfill by the keys that the table had at the start, and drops rows beyond them."""

    def backfill(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [row for row in rows if row["key"]["id"] <= 100])


class BackfillsAsOfTheLastMark(BrokenReader):
    """Yields the rows of a backfill with the last timestamp that was resolved before the change."""

    def backfill(self, payload: ScanSlice, items: Items) -> Items:
        return edited(items, lambda rows: [{**row, "updated": stamp(payload.at.prev())} for row in rows])


class KeepsTheFirstKey(BrokenReader):
    """Identifies rows by the key that their table had at the start."""

    def batch(self, rows: RowBatch) -> RowBatch:
        values = [{**row, "key": {"id": row["key"]["id"]}} for row in rows.batch.to_pylist()]
        return rebuilt(rows, values, schema=replace(rows.schema, primary_key=("id",)))


class StopsOneStepLate(BrokenPlanner):
    """Looks for schema changes after it has planned the step that passes them."""

    _found: TerminalRangefeedError | None = None

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if self._found is not None:
            raise self._found
        try:
            return super().advance(start, after=after, limit=limit)
        except TerminalRangefeedError as error:
            self._found = error
            self.context = replace(self.context, schema_changes=SchemaChangeRules(policy="nobackfill"))
            return super().advance(start, after=after, limit=limit)


class NoticesIdleTablesOneStepLate(BrokenPlanner):
    """Looks for schema changes only in steps with rows: another step passes them, and the next one begins the backfill.

    The policy is "backfill".
    """

    _late: Sequence[Rescan] = ()
    _begin: tuple[Token, Token] | None = None

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        if self._late:
            again = self.scan_again(start, self._late)
            assert again is not None
            self._begin, self._late = (start, again), ()
        end = super().advance(self._begun(start), after=after, limit=limit)
        first, last = SimulatedToken.from_token(self._begun(start)), SimulatedToken.from_token(end)
        cluster, rules = self.source.cluster, self.context.schema_changes
        boundary = reached_boundary(cluster, last.frontier) if last.scan is None and last.again is None else None
        if boundary is None or first.scan is not None or rules.policy != "backfill":
            return end
        passed = log_steps.advanced(cluster, boundary.passed(last.frontier), limit)
        moved = log_steps.pieces(cluster, first.frontier, passed, self.context.placement)
        if any(True for piece in moved for _ in _changes(cluster, piece)):
            return end
        tables = rules.tables_to_read_again(boundary.changes, resolved=last.frontier.high_water)
        self._late = [Rescan(table=table) for table in tables]
        return replace(last, frontier=passed).to_token()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return super().slices(self._begun(start), end, after=after)

    def _begun(self, start: Token) -> Token:
        return self._begin[1] if self._begin is not None and self._begin[0] == start else start


def _changes(cluster: Cluster, piece: Piece) -> Iterable[object]:
    return cluster.tables[piece.span.table].changes(piece.span, after=piece.after, upto=piece.upto)


class ForgetsTheBackfill(BrokenRangefeed):
    """Follows the log after a restart, although the saved token holds the rest of a backfill."""

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        token = super().start(saved, save)
        return {**token, "scan": None} if saved is not None and self.backfills(token) else token


class BackfillsUnasked(BrokenPlanner):
    """Backfills with the policy "nobackfill" too."""

    def __init__(self, context: RangefeedContext) -> None:
        rules = context.schema_changes
        policy = "backfill" if rules.policy == "nobackfill" else rules.policy
        super().__init__(replace(context, schema_changes=replace(rules, policy=policy)))


class BackfillsForEveryChange(BrokenPlanner):
    """Backfills when a column was added that is null in every row."""

    def __init__(self, context: RangefeedContext) -> None:
        rules = replace(context.schema_changes, events="column_changes")
        super().__init__(replace(context, schema_changes=rules))
