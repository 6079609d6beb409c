"""Rangefeeds that are wrong at schema boundaries."""

from __future__ import annotations

from dataclasses import replace

from cdc_conformance.sabotage.broken_rangefeeds.edits import Items, edited, rebuilt, stamp
from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenPlanner, BrokenReader
from cdc_conformance.simulated.slices import ScanSlice
from cdc_core import (
    RangefeedContext,
    RowBatch,
    SchemaChangeRules,
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
