"""Rangefeeds that yield wrong rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from cdc_conformance.sabotage.broken_rangefeeds.edits import (
    Items,
    Row,
    edited,
    one_row,
    op_of,
    rebuilt,
    stamp,
    updated_of,
)
from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenRangefeed, BrokenReader
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_conformance.simulated.transactions import Status
from cdc_core import Op, RangefeedContext, RowBatch, SpanMark, TableSchema


class ReadsChunkEndsTwice(BrokenReader):
    """Includes the key at which two chunks meet in both."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [*rows, rows[-1]])


class ScansAsInserts(BrokenReader):
    """Yields scanned rows with the op INSERT."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "op": int(Op.INSERT)} for row in rows])


class AlwaysScans(BrokenRangefeed):
    """Ignores `initial_scan`."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(replace(context, initial_scan=True))


class ScansTheLastChunkWithoutSnapshot(BrokenReader):
    """Reads the last chunk of a table in its present state, under the timestamp of the snapshot."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:
        if payload.span.start == b"" or payload.span.end is not None:
            return items
        cluster = self.source.cluster
        table = cluster.tables[payload.span.table]
        shape = table.newest_shape
        now = {id_: shape.row(version.cells or {}) for id_, version in cluster.rows(table, cluster.high)}
        return edited(items, lambda rows: [{**row, "after": now.get(row["key"]["id"], row["after"])} for row in rows])


class SkipsTransactionsOpenAtTheStart(BrokenReader):
    """Compares the snapshot with the time when a transaction began, not with its commit time."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        running: set[str] = set()
        at_start: set[str] | None = None
        lost = set()
        for event in self.events():
            if event["op"] == "read" and at_start is None:
                at_start = set(running)
            elif event["op"] == "begin":
                running.add(event["txn"])
            elif event["op"] in ("commit", "rollback"):
                running.discard(event["txn"])
        for event in self.events():
            if event["op"] == "write" and event["txn"] in (at_start or ()):
                lost.add((event["id"], (event["set"] or {}).get("n")))
        return edited(items, lambda rows: [row for row in rows if _version(row) not in lost])


class KeepsTheNewestTwentyVersions(BrokenReader):
    """Collects the changes of a step by key, and keeps at most twenty of each."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        batches = [item for item in items if isinstance(item, RowBatch)]
        left = Counter(_key(rows, row) for rows in batches for row in rows.batch.to_pylist())
        for place, item in enumerate(items):
            if isinstance(item, RowBatch):
                kept = []
                for row in item.batch.to_pylist():
                    if left[_key(item, row)] <= 20:
                        kept.append(row)
                    left[_key(item, row)] -= 1
                items[place] = rebuilt(item, kept)
        return items


class YieldsDeletesLast(BrokenReader):
    """Yields the deletes of a slice after its other rows."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        marks: Items = [item for item in items if isinstance(item, SpanMark)]
        parts: Items = []
        for deletes in (False, True):
            for item in items:
                if isinstance(item, RowBatch):
                    rows = [row for row in item.batch.to_pylist() if (op_of(row) is Op.DELETE) is deletes]
                    parts.append(rebuilt(item, rows))
        return [*parts, *marks]


class ReadsIntents(BrokenReader):
    """Yields rows of open transactions."""

    def log(self, payload: LogSlice, items: Items) -> Items:
        cluster = self.source.cluster
        dirty: Items = []
        for transaction in cluster.transactions.values():
            for (name, id_), intent in transaction.intents.items():
                piece = next((piece for piece in payload.pieces if piece.span.table == name), None)
                if transaction.status is not Status.OPEN or piece is None or intent.cells is None:
                    continue
                shape = cluster.tables[name].newest_shape
                dirty.append(one_row(shape.schema, id_=id_, after=shape.row(intent.cells), at=piece.upto))
        return [*dirty, *items]


class DropsLongTransactions(BrokenReader):
    """Keeps the rows of open transactions in a buffer that drops the oldest rows when it is full."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        commits = 0
        began: dict[str, int] = {}
        rows: dict[str, set[tuple[int, int | None]]] = defaultdict(set)
        lost = set()
        for event in self.events():
            if event["op"] == "begin":
                began[event["txn"]] = commits
            elif event["op"] == "write":
                rows[event["txn"]].add((event["id"], (event["set"] or {}).get("n")))
            elif event["op"] == "commit":
                commits += 1
                if commits - began[event["txn"]] > 10:
                    lost |= rows[event["txn"]]
        return edited(items, lambda found: [row for row in found if _version(row) not in lost])


class NumbersRowsOfATransaction(BrokenReader):
    """Increments the logical counter within a transaction from its fifth row on."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        seen: Counter[object] = Counter()

        def edit(rows: list[Row]) -> list[Row]:
            result = []
            for row in rows:
                time = updated_of(row)
                seen[time] += 1
                result.append({**row, "updated": stamp(time.next())} if seen[time] > 4 else row)
            return result

        return edited(items, edit)


class ReportsUpdatesAsInserts(BrokenReader):
    """Does not look whether there was a row before."""

    def row(self, row: Row) -> Row:
        return {**row, "op": int(Op.INSERT)} if op_of(row) is Op.UPDATE else row


class BeforeIsAfter(BrokenReader):
    """Takes the row before an update after the update was applied."""

    def row(self, row: Row) -> Row:
        return {**row, "before": row["after"]} if op_of(row) is Op.UPDATE and "before" in row else row


class AlwaysYieldsBefore(BrokenReader):
    """Ignores `diff`."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(replace(context, diff=True))


class KeepsAfterOfDeletes(BrokenReader):
    """Leaves the last version of a deleted row in `after`."""

    def row(self, row: Row) -> Row:
        return {**row, "after": row["before"]} if op_of(row) is Op.DELETE and "before" in row else row


class DeletesWithoutKey(BrokenReader):
    """Takes the key of a deleted row from `before`, which is absent without `diff`."""

    def row(self, row: Row) -> Row:
        return {**row, "key": {"id": None}} if op_of(row) is Op.DELETE and "before" not in row else row


class UpdatesWithoutKey(BrokenReader):
    """Omits the key columns in updates that did not change them."""

    def row(self, row: Row) -> Row:
        return {**row, "key": {"id": None}} if op_of(row) is Op.UPDATE else row


class EmptyIsNull(BrokenReader):
    """Yields null for an empty text."""

    def row(self, row: Row) -> Row:
        after = row["after"]
        return {**row, "after": {**after, "note": after["note"] or None}} if after else row


class DropsUnchangedLargeValues(BrokenReader):
    """Yields null for a large value that did not change, which logs omit."""

    def row(self, row: Row) -> Row:
        after = row["after"]
        large = after and op_of(row) is Op.UPDATE and len(after["note"] or "") > 10_000
        return {**row, "after": {**after, "note": None}} if large else row


class MvccAfterUpdated(BrokenReader):
    """Takes `mvcc` from a clock that it reads a little later."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "mvcc": stamp(updated_of(row).next())} for row in rows])


class UsesTheScanTimeAsMvcc(BrokenReader):
    """Yields the time of the scan as the commit time of scanned rows."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "mvcc": row["updated"]} for row in rows])


class WideOps(BrokenReader):
    """Builds batches without `RowBatch.of`, with another integer type for `op`."""

    def batch(self, rows: RowBatch) -> RowBatch:
        place = rows.batch.schema.get_field_index("op")
        batch = rows.batch.set_column(place, "op", rows.column("op").cast("int32"))
        return RowBatch(schema=rows.schema, batch=batch)


class KeepsTheFirstSchema(BrokenReader):
    """Decodes rows with the columns that the table had at the start, or at the last backfill."""

    def batch(self, rows: RowBatch) -> RowBatch:
        shapes = self.source.cluster.tables[rows.schema.name.full].shapes[: rows.schema.version]
        known = next(shape for shape in reversed(shapes) if shape.change is None or shape.change.kind.is_default)
        schema = replace(rows.schema, columns=known.schema.columns)
        return rebuilt(rows, rows.batch.to_pylist(), schema=schema)


class NumbersSchemasByWidth(BrokenReader):
    """Uses the number of columns as the schema version."""

    def batch(self, rows: RowBatch) -> RowBatch:
        return RowBatch(schema=replace(rows.schema, version=len(rows.schema.columns) - 2), batch=rows.batch)


class KeylessSchemas(BrokenRangefeed):
    """Describes tables without their primary keys."""

    def schemas(self) -> Sequence[TableSchema]:
        return [replace(schema, primary_key=()) for schema in super().schemas()]


def _key(rows: RowBatch, row: Row) -> tuple[str, int]:
    return rows.schema.name.full, row["key"]["id"]


def _version(row: Row) -> tuple[int, int | None]:
    return row["key"]["id"], None if row["after"] is None else row["after"]["n"]
