"""Rangefeeds that yield wrong rows, in the log, in scans, and with wrong schemas."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from cdc_conformance.rows import Change, rows
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_rangefeeds.parts import (
    LIVE,
    BrokenReader,
    Items,
    Row,
    edited,
    op_of,
    rebuilt,
    stamp,
    updated_of,
)
from cdc_conformance.simulated.source import LogSlice
from cdc_conformance.simulated.state import Status
from cdc_core import Op, RangefeedContext, RowBatch, Slice, Span, SpanMark, Timestamp


@mistakes
class Scans(BrokenReader):
    @breaks("test_initial_scan_yields_every_row_once", "scan_rows")
    def reads_chunk_ends_twice(self, rows: list[Row]) -> list[Row]:
        """Includes the key at which two chunks meet in both."""
        return [*rows, rows[-1]]

    @breaks("test_scanned_rows_have_the_op_scan", "scan_rows")
    def scans_as_inserts(self, rows: list[Row]) -> list[Row]:
        """Yields scanned rows with the op INSERT."""
        return [{**row, "op": int(Op.INSERT)} for row in rows]

    @breaks("test_rows_changed_during_the_scan_arrive_in_order", "scan_rows")
    def scans_the_last_chunk_without_snapshot(self, rows: list[Row]) -> list[Row]:
        """Reads the last chunk of a table in its current state, under the timestamp of the snapshot."""
        cluster, span = self.source.cluster, self.slice_.payload.span
        if span.start == b"" or span.end is not None:
            return rows
        table = cluster.tables[span.table]
        now = {id_: table.newest_shape.row(each.cells or {}) for id_, each in cluster.rows(table, cluster.high)}
        return [{**row, "after": now.get(row["key"]["id"], row["after"])} for row in rows]

    @breaks("test_mvcc_of_scanned_rows_is_their_commit_time", "scan_rows")
    def uses_the_scan_time_as_mvcc(self, rows: list[Row]) -> list[Row]:
        """Yields the time of the scan as the commit time of scanned rows."""
        return [{**row, "mvcc": row["updated"]} for row in rows]

    @breaks("test_nothing_is_resolved_before_the_scan_is_complete", "scan")
    def marks_whole_tables(self, items: Items) -> Items:
        """Marks the whole table after each chunk."""
        return [replace(item, span=Span(item.span.table)) if isinstance(item, SpanMark) else item for item in items]

    @breaks("test_no_resolved_mark_passes_a_schema_change_before_its_backfill", "backfill")
    def resolves_before_the_backfill_is_complete(self, items: Items) -> Items:
        """Marks the whole table after each chunk of a backfill."""
        return self.marks_whole_tables(items)

    @breaks("test_a_backfill_yields_every_row_that_exists", "backfill_rows")
    def backfills_what_the_initial_scan_read(self, rows: list[Row]) -> list[Row]:
        """Divides a backfill by the keys that the table had at the start, and drops rows beyond them."""
        return [row for row in rows if row["key"]["id"] <= 100]

    @breaks("test_a_backfill_is_later_than_everything_before", "backfill_rows")
    def backfills_as_of_the_last_mark(self, rows: list[Row]) -> list[Row]:
        """Yields the rows of a backfill with the last timestamp that was resolved before the change."""
        return [{**row, "updated": stamp(self.slice_.payload.at.prev())} for row in rows]

    @breaks("test_a_rescan_yields_every_row_again", "rescan_rows")
    def rescans_what_the_initial_scan_read(self, rows: list[Row]) -> list[Row]:
        """Divides a rescan by the keys that the table had at the start, and drops rows beyond them."""
        return self.backfills_what_the_initial_scan_read(rows)

    @breaks("test_no_mark_is_resolved_before_a_rescan_is_complete", "read")
    def resolves_while_a_rescan_waits(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """Resolves what the log has before the rows of the rescan."""
        if isinstance(slice_.payload, LogSlice):
            slice_ = replace(slice_, payload=replace(slice_.payload, resolved=True))
        return super().read(slice_)


@mistakes
class Log(BrokenReader):
    @breaks("test_no_row_is_missed_between_scan_and_log", "log_rows")
    def skips_transactions_open_at_the_start(self, rows: list[Row]) -> list[Row]:
        """Compares the snapshot with the time when a transaction began, not with its commit time."""
        running: set[str] = set()
        at_start: set[str] | None = None
        for event in self.events():
            if event["op"] == "read" and at_start is None:
                at_start = set(running)
            elif event["op"] == "begin":
                running.add(event["txn"])
            elif event["op"] in ("commit", "rollback"):
                running.discard(event["txn"])
        lost = {
            _written(event) for event in self.events() if event["op"] == "write" and event["txn"] in (at_start or ())
        }
        return [row for row in rows if _version(row) not in lost]

    @breaks("test_every_committed_version_arrives", "log")
    def keeps_the_newest_twenty_versions(self, items: Items) -> Items:
        """Collects the changes of a step by key, and keeps at most twenty of each."""
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

    @breaks(f"{LIVE}[deletes_last]", "log")
    def yields_deletes_last(self, items: Items) -> Items:
        """Yields the deletes of a slice after its other rows."""
        batches: Items = [item for item in items if isinstance(item, RowBatch)]
        others = edited(batches, lambda rows: [row for row in rows if op_of(row) is not Op.DELETE])
        deletes = edited(batches, lambda rows: [row for row in rows if op_of(row) is Op.DELETE])
        return [*others, *deletes, *(item for item in items if isinstance(item, SpanMark))]

    @breaks("test_rolled_back_rows_do_not_arrive", "log")
    def reads_intents(self, items: Items) -> Items:
        """Yields rows of open transactions."""
        cluster = self.source.cluster
        upto = {piece.span.table: piece.upto for piece in reversed(self.slice_.payload.pieces)}
        dirty: Items = []
        for transaction in cluster.transactions.values():
            for (name, _), intent in transaction.intents.items():
                if transaction.status is Status.OPEN and name in upto and intent.cells is not None:
                    shape = cluster.tables[name].newest_shape
                    change = Change(shape.row(intent.cells), op=Op.UPDATE, updated=upto[name])
                    dirty.append(rows(shape.schema, [change]))
        return [*dirty, *items]

    @breaks("test_a_long_transaction_arrives_after_its_commit", "log_rows")
    def drops_long_transactions(self, rows: list[Row]) -> list[Row]:
        """Keeps the rows of open transactions in a buffer that drops the oldest rows when it is full."""
        commits = 0
        began: dict[str, int] = {}
        of: dict[str, set[tuple[int, int | None]]] = defaultdict(set)
        lost = set()
        for event in self.events():
            if event["op"] == "begin":
                began[event["txn"]] = commits
            elif event["op"] == "write":
                of[event["txn"]].add(_written(event))
            elif event["op"] == "commit":
                commits += 1
                if commits - began[event["txn"]] > 10:
                    lost |= of[event["txn"]]
        return [row for row in rows if _version(row) not in lost]

    @breaks("test_all_rows_of_a_transaction_have_one_timestamp", "log")
    def numbers_rows_of_a_transaction(self, items: Items) -> Items:
        """Increments the logical counter within a transaction from its fifth row on."""
        seen: Counter[object] = Counter()

        def numbered(row: Row) -> Row:
            time = updated_of(row)
            seen[time] += 1
            return {**row, "updated": stamp(time.next())} if seen[time] > 4 else row

        return edited(items, lambda rows: list(map(numbered, rows)))

    @breaks("test_mvcc_is_never_after_updated", "log_rows")
    def mvcc_after_updated(self, rows: list[Row]) -> list[Row]:
        """Takes `mvcc` from a clock that it reads a little later."""
        return [{**row, "mvcc": stamp(updated_of(row).next())} for row in rows]

    @breaks(f"{LIVE}[mark_below_the_last_row]", "log")
    def marks_below_the_last_row(self, items: Items) -> Items:
        """Marks a span just below its last row."""
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

    @breaks("test_span_marks_follow_the_rows_of_their_slice", "read")
    def yields_marks_first(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        """Yields the marks of a slice before its rows."""
        yield from sorted(super().read(slice_), key=lambda item: isinstance(item, RowBatch))


@mistakes
class Contents(BrokenReader):
    @breaks("test_ops_are_correct", "row")
    def reports_updates_as_inserts(self, row: Row) -> Row:
        """Does not look whether there was a row before."""
        return {**row, "op": int(Op.INSERT)} if op_of(row) is Op.UPDATE else row

    @breaks("test_before_is_the_previous_committed_version", "row")
    def before_is_after(self, row: Row) -> Row:
        """Takes the row before an update after the update was applied."""
        return {**row, "before": row["after"]} if op_of(row) is Op.UPDATE and "before" in row else row

    @breaks("test_before_is_absent_without_diff", "__init__")
    def always_yields_before(self, context: RangefeedContext) -> None:
        """Ignores `diff`."""
        super().__init__(replace(context, diff=True))

    @breaks("test_after_is_null_for_deletes_only", "row")
    def keeps_after_of_deletes(self, row: Row) -> Row:
        """Leaves the last version of a deleted row in `after`."""
        return {**row, "after": row["before"]} if op_of(row) is Op.DELETE and "before" in row else row

    @breaks("test_deletes_carry_the_key", "row")
    def deletes_without_key(self, row: Row) -> Row:
        """Takes the key of a deleted row from `before`, which is absent without `diff`."""
        return {**row, "key": {"id": None}} if op_of(row) is Op.DELETE and "before" not in row else row

    @breaks("test_keys_match_their_rows", "row")
    def updates_without_key(self, row: Row) -> Row:
        """Omits the key columns in updates that did not change them."""
        return {**row, "key": {"id": None}} if op_of(row) is Op.UPDATE else row

    @breaks("test_values_arrive_unchanged", "row")
    def empty_is_null(self, row: Row) -> Row:
        """Yields null for an empty text."""
        after = row["after"]
        return {**row, "after": {**after, "note": after["note"] or None}} if after else row

    @breaks("test_unchanged_large_values_are_present", "row")
    def drops_unchanged_large_values(self, row: Row) -> Row:
        """Yields null for a large value that did not change, which logs omit."""
        after = row["after"]
        large = after and op_of(row) is Op.UPDATE and len(after["note"] or "") > 10_000
        return {**row, "after": {**after, "note": None}} if large else row

    @breaks("test_columns_have_the_declared_types", "batch")
    def wide_ops(self, rows: RowBatch) -> RowBatch:
        """Builds batches without `RowBatch.of`, with another integer type for `op`."""
        place = rows.batch.schema.get_field_index("op")
        batch = rows.batch.set_column(place, "op", rows.column("op").cast("int32"))
        return RowBatch(schema=rows.schema, batch=batch)

    @breaks("test_rows_carry_the_schema_they_were_written_with", "batch")
    def keeps_the_first_schema(self, rows: RowBatch) -> RowBatch:
        """Decodes rows with the columns that the table had at the start, or at the last backfill."""
        shapes = self.source.cluster.tables[rows.schema.name.full].shapes[: rows.schema.version]
        known = next(shape for shape in reversed(shapes) if shape.change is None or shape.change.kind.is_default)
        schema = replace(rows.schema, columns=known.schema.columns)
        return rebuilt(rows, rows.batch.to_pylist(), schema=schema)

    @breaks("test_schema_versions_increase_across_restarts", "batch")
    def numbers_schemas_by_width(self, rows: RowBatch) -> RowBatch:
        """Uses the number of columns as the schema version."""
        return RowBatch(schema=replace(rows.schema, version=len(rows.schema.columns) - 2), batch=rows.batch)

    @breaks("test_all_rows_follow_under_a_changed_key", "batch")
    def keeps_the_first_key(self, rows: RowBatch) -> RowBatch:
        """Identifies rows by the key that their table had at the start."""
        values = [{**row, "key": {"id": row["key"]["id"]}} for row in rows.batch.to_pylist()]
        return rebuilt(rows, values, schema=replace(rows.schema, primary_key=("id",)))

    @breaks("test_large_slices_come_in_many_batches", "changed")
    def yields_one_batch_per_slice(self, kind: str, items: Items) -> Items:  # noqa: ARG002
        """Collects all rows of a slice before it yields them."""
        joined: Items = []
        for item in items:
            last = joined[-1] if joined else None
            if isinstance(item, RowBatch) and isinstance(last, RowBatch) and last.schema == item.schema:
                joined[-1] = rebuilt(last, [*last.batch.to_pylist(), *item.batch.to_pylist()])
            else:
                joined.append(item)
        return joined


def _key(rows: RowBatch, row: Row) -> tuple[str, int]:
    return rows.schema.name.full, row["key"]["id"]


def _version(row: Row) -> tuple[int, int | None]:
    return row["key"]["id"], None if row["after"] is None else row["after"]["n"]


def _written(event: Row) -> tuple[int, int | None]:
    """Return the version that a write made, as `_version` returns it."""
    return event["id"], (event["set"] or {}).get("n")
