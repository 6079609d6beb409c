"""Promises about the contents of a row: its key, the row before and after the change, its times and its schema."""

from __future__ import annotations

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import Change, newest
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Row, RowKey, Workload, same_row
from cdc_core import Op, RowBatch
from cdc_core.rows import TIMESTAMP_TYPE

_TEXTS = ("", " ", "null", "NULL", "ünï😀", 'a "quoted" \\ text', "{}", "line\nbreak\ttab", "\x01", "'; --", "x" * 1000)


class RowContents(RangefeedSuite):
    """The contents of a row: its key, the row before and after the change, its times and its schema."""

    @requires("before_images", "the source must know the row before a change")
    def test_before_is_the_previous_committed_version(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`before` is the row before the transaction, null if there was none.

        It is not the result of an earlier statement in the same transaction, which was never visible. A consumer that
        keeps sums subtracts `before` and adds `after`.
        """
        feed = open_feed(start=True)
        workload.run(40)
        twice = workload.begin()
        twice.put(workload.tables[0], 90, note="once")
        twice.put(workload.tables[0], 90, note="twice")
        twice.commit()
        twice = workload.begin()
        twice.put(workload.tables[0], 90, note="three times")
        twice.delete(workload.tables[0], 90)
        twice.commit()
        workload.settle()
        feed.catch_up()
        expected = {(write.key, _n(write.before), _n(write.after)): write.before for write in workload.history.writes()}
        previous: dict[RowKey, int | None] = {}
        for change in sorted(feed.changes, key=lambda change: change.updated):
            n = previous.get(change.row_key)
            if change.n == n:
                continue  # a repeat
            before = expected.get((change.row_key, n, change.n))
            assert same_row(change.before, before), f"before must be {before}, not {change.before}: {change}"
            previous[change.row_key] = change.n

    def test_before_is_absent_without_diff(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """Without the option `diff`, batches have no column `before`: it would double the size of all messages.

        `RangefeedContext.diff` holds the user's choice.
        """
        feed = open_feed(before=False, start=True)
        workload.put(first_table, 1)
        workload.put(first_table, 1)
        feed.catch_up()
        for batch in feed.batches:
            assert not batch.has_before, f"a batch has the column `before` without diff: {batch}"

    def test_after_is_null_for_deletes_only(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """`after` is null for a deleted row and not null for any other row.

        The deleted row belongs in `before`; in `after`, consumers would read it as an existing row.
        """
        workload.fill(first_table, 3)
        feed = open_feed().scan()
        workload.delete(first_table, 1)
        workload.put(first_table, 2)
        feed.catch_up()
        assert any(change.deleted for change in feed.changes), "a row was deleted, but no delete arrived"
        for change in feed.changes:
            assert (change.after is None) is change.deleted, f"after is {change.after}: {change}"

    def test_deletes_carry_the_key(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """A delete carries the key of the deleted row, even if nothing else of the row is known.

        Without the key, consumers do not know which row was deleted. If this fails, look at where the key is taken
        from: `after` is null.
        """
        workload.fill(first_table, 3)
        feed = open_feed(before=False).scan()
        workload.delete(first_table, 2)
        feed.catch_up()
        keys = [change.key for change in feed.changes if change.deleted]
        assert keys == [{"id": 2}], f"row 2 was deleted, but the keys of the deletes are {keys}"

    def test_keys_match_their_rows(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """`key` holds the row's own key columns. Neither `key` nor one of its fields is null.

        Sinks choose the partition by the key, and consumers choose the row that they replace.
        """
        workload.fill(first_table, 5)
        feed = open_feed().scan()
        workload.put(first_table, 2)
        workload.put(first_table, 7)
        feed.catch_up()
        for change in feed.changes:
            assert change.after is not None
            expected = {"id": change.after["id"]}
            assert change.key == expected, f"the key of the row with id {expected['id']} is {change.key}: {change}"

    def test_values_arrive_unchanged(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Texts, nulls and numbers arrive exactly as they were written, from the scan and from the log.

        If this fails, look at empty texts, at texts that look like null, and at escaping.
        """
        scanned, logged = workload.tables
        for id_, text in enumerate((None, *_TEXTS), start=1):
            workload.put(scanned, id_, note=text)
        feed = open_feed().scan()
        for id_, text in enumerate((None, *_TEXTS), start=1):
            workload.put(logged, id_, note=text)
        feed.catch_up()
        _assert_rows(feed.changes, workload.rows)

    def test_unchanged_large_values_are_present(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """After an update of another column, a row with a large value arrives complete.

        Logs often omit large values that did not change. They must be filled in, never replaced by a placeholder.
        """
        text = "".join(f"{number:x}" for number in range(20_000))
        workload.put(first_table, 1, note=text)
        feed = open_feed().scan()
        workload.put(first_table, 2, note=text)
        workload.put(first_table, 1)
        workload.put(first_table, 2)
        feed.catch_up()
        for change in feed.changes:
            assert change.after is not None
            note = change.after["note"]
            assert note == text, f"a value of {len(text)} characters arrived as {str(note)[:40]!r}: {change}"

    @requires("mvcc", "the source must know when a row was committed")
    def test_mvcc_is_never_after_updated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`mvcc`, the row's own commit time, is at or before `updated`.

        They differ for scanned rows, and where the rangefeed moved `updated` forward to keep timestamps in order.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed().scan()
        workload.run(10, settle=True)
        feed.catch_up()
        for change in feed.changes:
            assert change.mvcc is not None, f"mvcc is missing: {change}"
            assert change.mvcc <= change.updated, f"mvcc {change.mvcc} is after updated: {change}"

    @requires("mvcc", "the source must know when a row was committed")
    def test_mvcc_of_scanned_rows_is_their_commit_time(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A scanned row's `mvcc` is the time of the commit that wrote it, not of the scan.

        Consumers have no other way to know how old the row is.
        """
        table = workload.tables[0]
        feed = open_feed()
        begun = feed.clock.now()
        workload.put(table, 91)
        workload.put(table, 92)
        between = feed.clock.now()
        workload.run(5, settle=True)
        feed.scan()
        (mvcc,) = {change.mvcc for change in feed.changes if change.row_key == (table, 91)}
        assert mvcc is not None, "mvcc is missing"
        assert mvcc <= between, f"row 91 was committed by {between}, but its mvcc is {mvcc}"
        assert begun.wall - mvcc.wall < 1_000_000_000, f"row 91 was committed after {begun}, but its mvcc is {mvcc}"

    def test_columns_have_the_declared_types(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """Every column of a batch has the type of its schema; see the tables at `RowBatch` and `ColumnType`.

        Encoders and sinks work on whole columns and do not check single values. `RowBatch.of` checks the types.
        """
        workload.fill(first_table, 3)
        feed = open_feed().scan()
        workload.put(first_table, 1, note=None)
        workload.delete(first_table, 2)
        feed.catch_up()
        for batch in feed.batches:
            _assert_types(batch)

    @requires("schema_changes", "columns are added and dropped while the feed runs")
    def test_rows_carry_the_schema_they_were_written_with(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A column is added and later dropped; each row arrives in order, with the columns of its own time.

        Rows from before the change must not have the new column, and rows from after it must.
        """
        table = workload.tables[0]
        workload.put(table, 1)
        feed = open_feed().scan()
        workload.put(table, 1, note="before")
        workload.add_column(table, "extra")
        workload.put(table, 1, extra="x")
        workload.put(table, 2, extra="y")
        workload.drop_column(table, "extra")
        workload.put(table, 1, note="after")
        workload.put(table, 2)
        feed.catch_up()
        shapes = {
            n: (tuple(change.after), change.after.get("extra"))
            for n, change in _first_arrivals(feed.changes).items()
            if change.after
        }
        narrow, wide = ("id", "n", "note"), ("id", "n", "note", "extra")
        expected = {1: (narrow, None), 2: (narrow, None), 3: (wide, "x"), 4: (narrow, None)}
        assert shapes == expected, f"columns and value of `extra` by version must be {expected}, not {shapes}"

    @requires("schema_changes", "columns are added and dropped while the feed runs")
    def test_schema_versions_increase_across_restarts(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Each schema change of a table gives a greater schema version, also after a restart.

        Sinks name files and registered schemas by it: one version for two schemas would mix them up.
        """
        table = workload.tables[0]
        workload.put(table, 1)
        feed = open_feed().scan()
        workload.add_column(table, "extra")
        workload.put(table, 1, extra="x")
        feed.catch_up()
        feed.restart()
        workload.put(table, 1, extra="y")
        feed.catch_up()
        workload.drop_column(table, "extra")
        workload.put(table, 1)
        workload.put(table, 2)
        feed.catch_up()
        found = {n: change.version for n, change in _first_arrivals(feed.changes).items()}
        rising = found[1] < found[2] == found[3] < found[4]
        assert rising, f"versions 1 to 4 of the row arrived with the schema versions {list(found.values())}"


def _first_arrivals(changes: list[Change]) -> dict[int | None, Change]:
    """Return the first arrival of each version of row 1; a backfill repeats the newest one in another shape."""
    found: dict[int | None, Change] = {}
    for change in changes:
        if change.id == 1:
            found.setdefault(change.n, change)
    return found


def _n(row: Row | None) -> int | None:
    return None if row is None else row["n"]


def _assert_rows(changes: list[Change], rows: dict[RowKey, Row]) -> None:
    found = newest(changes)
    for key, row in rows.items():
        assert key in found, f"row {key} did not arrive: {row}"
        if not same_row(found[key].after, row):
            pytest.fail(f"row {key} was written as {row}, but arrived as {found[key].after}: {found[key]}")


def _assert_types(rows: RowBatch) -> None:
    schema = rows.schema
    expected = {
        "op": "uint8",
        "updated": TIMESTAMP_TYPE,
        "mvcc": TIMESTAMP_TYPE,
        "key": schema.key_type,
        "after": schema.after_type,
        "before": schema.after_type,
    }
    for name in rows.batch.schema.names:
        assert name in expected, f"a batch of {schema.name} has the unknown column `{name}`"
        found = rows.column(name).type
        assert found == expected[name], f"column `{name}` of {schema.name} must be {expected[name]}, not {found}"
    for name in ("op", "updated", "key"):
        assert rows.column(name).null_count == 0, f"column `{name}` of {schema.name} has nulls"
    ops = set(rows.column("op").to_pylist())
    assert ops <= {int(op) for op in Op}, f"column `op` of {schema.name} has values that are not an Op: {sorted(ops)}"
