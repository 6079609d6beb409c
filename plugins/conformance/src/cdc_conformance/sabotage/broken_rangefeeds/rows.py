"""Rangefeeds that hand out wrong rows."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from cdc_conformance.sabotage.rangefeed_edits import Editor, Row, edited, of, one_row, rebuilt, stamp, updated
from cdc_conformance.simulated.rangefeed import LogSlice, ScanSlice
from cdc_conformance.simulated.transactions import Status
from cdc_core import Mark, Op, RangefeedContext, RowBatch, TableSchema

Items = list[RowBatch | Mark]


class ReadsChunkEndsTwice(Editor):
    """Both chunks that meet at a key include it."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [*rows, rows[-1]])


class ScansAsInserts(Editor):
    """Gives scanned rows the op of new ones."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "op": int(Op.INSERT)} for row in rows])


class AlwaysScans(Editor):
    """Forgets to look at `initial_scan`."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(replace(context, initial_scan=True))


class ScansTheLastChunkWithoutSnapshot(Editor):
    """Reads the last chunk of a table as it is by now, under the timestamp of the snapshot."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:
        if payload.span.start == b"" or payload.span.end is not None:
            return items
        table = self._cluster.tables[payload.span.table]
        shape = table.newest_shape
        now = {id_: shape.row(version.cells or {}) for id_, version in self._cluster.rows(table, self.now())}
        return edited(items, lambda rows: [{**row, "after": now.get(row["key"]["id"], row["after"])} for row in rows])


class ForgetsTransactionsOpenAtTheStart(Editor):
    """Reads the log from where the snapshot was taken, by when a transaction began and not by when it committed."""

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


class KeepsTheNewestTwentyVersions(Editor):
    """Collects the changes of a step by key, with room for only so many."""

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


class DeletesLast(Editor):
    """Hands out the deletes of a slice after its other rows."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        marks: Items = [item for item in items if isinstance(item, Mark)]
        parts: Items = []
        for deletes in (False, True):
            for item in items:
                if isinstance(item, RowBatch):
                    rows = [row for row in item.batch.to_pylist() if (of(row) is Op.DELETE) is deletes]
                    parts.append(rebuilt(item, rows))
        return [*parts, *marks]


class ReadsIntents(Editor):
    """Hands out what transactions have written that are still open."""

    def log(self, payload: LogSlice, items: Items) -> Items:
        cluster = self._cluster
        dirty: Items = []
        for transaction in cluster.transactions.values():
            for (name, id_), intent in transaction.intents.items():
                piece = next((piece for piece in payload.pieces if piece.span.table == name), None)
                if transaction.status is not Status.OPEN or piece is None or intent.cells is None:
                    continue
                shape = cluster.tables[name].newest_shape
                dirty.append(one_row(shape.schema, id_=id_, after=shape.row(intent.cells), at=piece.upto))
        return [*dirty, *items]


class ForgetsLongTransactions(Editor):
    """Keeps the rows of open transactions in a buffer of which the oldest are thrown away."""

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


class CountsRowsOfATransaction(Editor):
    """Gives the rows of a larger transaction logical counters of their own from the fifth on."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        seen: Counter[object] = Counter()

        def edit(rows: list[Row]) -> list[Row]:
            result = []
            for row in rows:
                time = updated(row)
                seen[time] += 1
                result.append({**row, "updated": stamp(time.next())} if seen[time] > 4 else row)
            return result

        return edited(items, edit)


class InsertsOnly(Editor):
    """Knows only that a row is there now."""

    def row(self, row: Row) -> Row:
        return {**row, "op": int(Op.INSERT)} if of(row) is Op.UPDATE else row


class BeforeIsAfter(Editor):
    """Takes the image before an update after it was applied."""

    def row(self, row: Row) -> Row:
        return {**row, "before": row["after"]} if of(row) is Op.UPDATE and "before" in row else row


class AlwaysBefore(Editor):
    """Yields the rows before all changes, whoever asks for them."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(replace(context, diff=True))


class DeletesWithARow(Editor):
    """Leaves the last version of a row in `after` when it is deleted."""

    def row(self, row: Row) -> Row:
        return {**row, "after": row["before"]} if of(row) is Op.DELETE and "before" in row else row


class DeletesWithoutKey(Editor):
    """Takes the key of a deleted row from `before`, which is not there unless it was asked for."""

    def row(self, row: Row) -> Row:
        return {**row, "key": {"id": None}} if of(row) is Op.DELETE and "before" not in row else row


class UpdatesWithoutKey(Editor):
    """Has no key columns in updates that did not change them."""

    def row(self, row: Row) -> Row:
        return {**row, "key": {"id": None}} if of(row) is Op.UPDATE else row


class EmptyIsNull(Editor):
    """Takes empty texts for null."""

    def row(self, row: Row) -> Row:
        after = row["after"]
        return {**row, "after": {**after, "note": after["note"] or None}} if after else row


class DropsUnchangedLargeValues(Editor):
    """Has null where the log leaves out a large value that did not change."""

    def row(self, row: Row) -> Row:
        after = row["after"]
        large = after and of(row) is Op.UPDATE and len(after["note"] or "") > 10_000
        return {**row, "after": {**after, "note": None}} if large else row


class MvccAfterUpdated(Editor):
    """Takes `mvcc` from a clock that is read a little later."""

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "mvcc": stamp(updated(row).next())} for row in rows])


class ScannedRowsAreNew(Editor):
    """Gives scanned rows the time of the scan for that of their commit."""

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [{**row, "mvcc": row["updated"]} for row in rows])


class WideOps(Editor):
    """Builds batches by itself, with another integer type for `op`."""

    def batch(self, rows: RowBatch) -> RowBatch:
        place = rows.batch.schema.get_field_index("op")
        batch = rows.batch.set_column(place, "op", rows.column("op").cast("int32"))
        return RowBatch(schema=rows.schema, batch=batch)


class FirstShapeForEver(Editor):
    """Decodes all rows with the columns that the table had in the beginning."""

    def batch(self, rows: RowBatch) -> RowBatch:
        schema = replace(rows.schema, columns=tuple(rows.schema.columns[:3]))
        return rebuilt(rows, rows.batch.to_pylist(), schema=schema)


class NumbersShapesByWidth(Editor):
    """Takes the number of columns for the version of a shape."""

    def batch(self, rows: RowBatch) -> RowBatch:
        return RowBatch(schema=replace(rows.schema, version=len(rows.schema.columns) - 2), batch=rows.batch)


class KeylessSchemas(Editor):
    """Describes tables without their keys."""

    def schemas(self) -> Sequence[TableSchema]:
        return [dataclasses.replace(schema, primary_key=()) for schema in super().schemas()]


def _key(rows: RowBatch, row: Row) -> tuple[str, int]:
    return rows.schema.name.full, row["key"]["id"]


def _version(row: Row) -> tuple[int, int | None]:
    return row["key"]["id"], None if row["after"] is None else row["after"]["n"]
