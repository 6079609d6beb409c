"""Partitions that are attached, detached, dropped and truncated while a changefeed runs, and inheritance."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import Sql, table_of, value
from cdc_testing.runs import Feed, eventually

from cdc_core import Op, TerminalRangefeedError
from cdc_core.cli.main import main


def partitioned(sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int, day int, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    sql.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    sql.execute("CREATE TABLE p2 (v text, day int NOT NULL, id int NOT NULL, PRIMARY KEY (id, day))")
    sql.execute("ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)")
    sql.execute("INSERT INTO p SELECT g, g % 20, repeat('x', 300) FROM generate_series(1, 1000) g")


def test_a_partitioned_table_is_watched_through_its_root(database: str, sql: Sql) -> None:
    partitioned(sql)
    with started(database, "p", bytes_=100_000) as feed:
        sql.execute("UPDATE p SET v = 'early' WHERE id < 10")
        feed.scan()
        sql.execute("UPDATE p SET day = 15 WHERE id = 1")
        sql.execute("UPDATE p SET v = 'b' WHERE id IN (2, 12)")
        sql.execute("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)")
        sql.execute("INSERT INTO p VALUES (5000, 25, 'new')")
        feed.catch_up()
        assert {change.table for change in feed.changes} == {"public.p"}
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)


def test_a_partition_dropped_during_the_scan_is_left_out(database: str, sql: Sql) -> None:
    partitioned(sql)
    with started(database, "p", options={"removed_partitions": "keep"}, bytes_=50_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 100)
        sql.execute("DROP TABLE p2")
        feed.catch_up()
        left = {key: row for key, row in feed.rows("public.p").items() if key[1] < 10}
        assert left == table_of(sql, "SELECT id, day, v FROM p", key=2)


def test_an_attached_table_with_rows_is_scanned(database: str, sql: Sql) -> None:
    partitioned(sql)
    sql.execute("CREATE TABLE old (LIKE p INCLUDING ALL)")
    sql.execute("INSERT INTO old SELECT g, 25, repeat('y', 300) FROM generate_series(2000, 2999) g")
    with caught_up(database, "p") as feed:
        sql.execute("ALTER TABLE p ATTACH PARTITION old FOR VALUES FROM (20) TO (30)")
        sql.execute("UPDATE p SET v = 'touched' WHERE id = 2500")
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)
        scanned = [change for change in feed.changes if change.op is Op.SCAN]
        assert len(scanned) == 2000


def test_a_table_filled_and_attached_in_one_transaction_is_scanned_after_a_restart(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p") as feed:
        feed.close()
        with sql.transaction():
            sql.execute("CREATE TABLE old (LIKE p INCLUDING ALL)")
            sql.execute("INSERT INTO old SELECT g, 25, repeat('y', 300) FROM generate_series(2000, 2999) g")
            sql.execute("ALTER TABLE p ATTACH PARTITION old FOR VALUES FROM (20) TO (30)")
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)


def test_a_table_created_as_a_partition_is_not_scanned(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p", initial_scan=False) as feed:
        sql.execute("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)")
        sql.execute("INSERT INTO p SELECT g, 25 FROM generate_series(2000, 2999) g")
        feed.catch_up()
        assert len(feed.changes) == 1000
        assert {change.op for change in feed.changes} == {Op.INSERT}


@pytest.mark.parametrize("how", ["DETACH PARTITION p1", "DETACH PARTITION p1 CONCURRENTLY"])
def test_the_rows_of_a_detached_partition_are_deleted(database: str, sql: Sql, how: str) -> None:
    partitioned(sql)
    with caught_up(database, "p", bytes_=50_000) as feed:
        sql.execute("UPDATE p SET v = 'last' WHERE id = 1")
        sql.execute(f"ALTER TABLE p {how}")
        sql.execute("INSERT INTO p1 VALUES (9000, 1, 'unseen')")
        sql.execute("INSERT INTO p VALUES (9001, 11, 'seen')")
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)
        assert (9001, 11) in feed.rows("public.p")


@pytest.mark.parametrize("removed", ["delete", "keep"])
def test_a_partition_that_was_written_while_it_was_detached(database: str, sql: Sql, removed: str) -> None:
    partitioned(sql)
    with caught_up(database, "p", options={"removed_partitions": removed}) as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        sql.execute("UPDATE p1 SET v = 'apart' WHERE id < 50")
        sql.execute("DELETE FROM p1 WHERE id IN (101, 102)")
        sql.execute("ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)")
        if removed == "delete":
            with pytest.raises(TerminalRangefeedError, match=r"partition public\.p1 was detached and attached again"):
                feed.catch_up()
            return
        feed.catch_up()
        rows = feed.rows("public.p")
        assert rows.pop((101, 1))["v"] == rows.pop((102, 2))["v"] == "x" * 300
        assert rows == table_of(sql, "SELECT id, day, v FROM p", key=2)
        scanned = len(feed.changes)
        feed.restart()
        feed.catch_up()
        assert len(feed.changes) == scanned


def test_keys_that_went_into_another_partition_are_not_deleted(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p") as feed:
        with sql.transaction():
            sql.execute("ALTER TABLE p DETACH PARTITION p1")
            sql.execute("CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (10)")
            sql.execute("INSERT INTO p SELECT id, day, 'moved' FROM p1 WHERE id % 2 = 0")
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)


def test_the_deletes_of_a_detached_partition_have_the_rows_before_when_diff_is_on(database: str, sql: Sql) -> None:
    partitioned(sql)
    for name in ("p", "p1", "p2"):
        sql.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    with caught_up(database, "p", diff=True) as feed:
        row = feed.rows("public.p")[1, 1]
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        feed.catch_up()
        assert [change.before for change in feed.changes if change.op is Op.DELETE and change.key == (1, 1)] == [row]


def test_columns_that_are_altered_after_a_detach_are_null_before(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, n int, m int, v bytea) PARTITION BY LIST (id)")
    for number in (1, 2):
        sql.execute(f"CREATE TABLE p{number} PARTITION OF p FOR VALUES IN ({number})")
        sql.execute(f"ALTER TABLE p{number} REPLICA IDENTITY FULL")
    sql.execute("ALTER TABLE p REPLICA IDENTITY FULL")
    sql.execute(r"INSERT INTO p VALUES (1, 7, 7, '\xff'), (2, 8, 8, '\xff')")
    with caught_up(database, "p", diff=True) as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        sql.execute("ALTER TABLE p ALTER v TYPE text USING 'x', ADD added int")
        sql.execute("ALTER TABLE p RENAME m TO renamed")
        feed.catch_up()
        deleted = [change.before for change in feed.changes if change.op is Op.DELETE]
        assert deleted == [{"id": 1, "n": 7, "renamed": None, "v": None, "added": None}]
        assert feed.rows("public.p").keys() == {(2,)}


def test_a_key_whose_type_changed_after_a_detach_ends_it(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p") as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        sql.execute("ALTER TABLE p ALTER id TYPE text")
        with pytest.raises(TerminalRangefeedError, match="was dropped or altered before its rows were deleted"):
            feed.catch_up()


def test_a_restart_continues_with_the_deletes_of_a_detached_partition(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p", bytes_=50_000) as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        feed.steps_until(lambda: any(change.op is Op.DELETE for change in feed.changes))
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)


@pytest.mark.parametrize("statements", [["DROP TABLE p1"], ["ALTER TABLE p DETACH PARTITION p1", "DROP TABLE p1"]])
def test_a_partition_dropped_with_rows_to_delete_ends_the_changefeed(
    database: str, sql: Sql, statements: list[str]
) -> None:
    partitioned(sql)
    with caught_up(database, "p", bytes_=50_000) as feed:
        resolved = max(feed.resolved.values())
        for statement in statements:
            sql.execute(statement)
        with pytest.raises(
            TerminalRangefeedError, match=r"table public\.p: partition .* was dropped or altered before"
        ):
            feed.catch_up()
        assert max(feed.resolved.values()) == resolved


@pytest.mark.parametrize("statement", ["ALTER TABLE p DETACH PARTITION p0", "DROP TABLE p0"])
@pytest.mark.parametrize("removed", ["delete", "keep"])
def test_a_partition_that_came_and_went_while_the_changefeed_was_stopped(
    database: str, sql: Sql, statement: str, removed: str
) -> None:
    partitioned(sql)
    with caught_up(database, "p", options={"removed_partitions": removed}) as feed:
        feed.close()
        sql.execute("CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (20) TO (30)")
        sql.execute("INSERT INTO p VALUES (1, 20, 'came')")
        sql.execute(statement)
        sql.execute("INSERT INTO p VALUES (1, 0, 'later')")
        feed.restart()
        if removed == "delete" and "DROP" in statement:
            with pytest.raises(TerminalRangefeedError, match="was dropped or altered before its rows were deleted"):
                feed.catch_up()
        else:
            feed.catch_up()
        left = {(1, 20)} if removed == "keep" or "DROP" in statement else set()
        assert feed.rows("public.p").keys() - table_of(sql, "SELECT id, day, v FROM p", key=2).keys() == left
        assert (1, 0) in feed.rows("public.p")


def test_a_partition_without_rows_may_be_detached_and_dropped_before_its_log_is_read(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p", bytes_=30_000) as feed:
        sql.execute("UPDATE p SET v = 'last'")
        sql.execute("DELETE FROM p WHERE day < 10")

        def is_empty() -> bool:  # not before the server has ended the connection of the scan
            sql.execute("VACUUM p1")
            return value(sql, "SELECT pg_relation_size('p1')") == 0

        eventually("the partition is empty", is_empty)
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        for _ in range(2):
            feed.step()
        sql.execute("DROP TABLE p1")
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)
        assert "removed" not in feed.token["tables"]["public.p"]


def test_the_only_partition_dropped_in_the_middle_of_its_deletes_ends_the_changefeed(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE p1 PARTITION OF p DEFAULT")
    sql.execute("INSERT INTO p SELECT g, repeat('x', 300) FROM generate_series(1, 1000) g")
    with caught_up(database, "p", bytes_=50_000) as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        feed.steps_until(lambda: any(change.op is Op.DELETE for change in feed.changes))
        sql.execute("DROP TABLE p1")
        with pytest.raises(TerminalRangefeedError, match="was dropped or altered before its rows were deleted"):
            feed.catch_up()


def test_removed_partitions_can_keep_their_rows_at_the_sink(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    partitioned(sql)
    with caught_up(database, "p", options={"removed_partitions": "keep"}) as feed:
        sql.execute("DROP TABLE p1")
        feed.catch_up()
        sql.execute("INSERT INTO p VALUES (9001, 11, 'seen')")
        feed.catch_up()
        assert (1, 1) in feed.rows("public.p")
        assert (9001, 11) in feed.rows("public.p")
        warning = "table public.p: 1 partition removed; the rows stay at the sink"
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [warning]


def test_a_partition_that_was_detached_for_a_while_is_scanned_again(database: str, sql: Sql) -> None:
    partitioned(sql)
    with caught_up(database, "p") as feed:
        sql.execute("ALTER TABLE p DETACH PARTITION p1")
        sql.execute("INSERT INTO p VALUES (9001, 11, 'between')")
        feed.catch_up()
        sql.execute("INSERT INTO p1 VALUES (9000, 1, 'written while detached')")
        feed.catch_up()
        sql.execute("ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)")
        sql.execute("INSERT INTO p VALUES (9002, 12, 'after')")
        feed.catch_up()
        assert feed.rows("public.p") == table_of(sql, "SELECT id, day, v FROM p", key=2)


def test_children_that_are_not_delivered_are_named(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql.execute("CREATE TABLE metrics (id int PRIMARY KEY)")
    sql.execute("CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE part PARTITION OF parted FOR VALUES FROM (1) TO (2)")

    def told(*tables: str) -> list[str]:
        assert main(["check", str(Feed(tmp_path, database, list(tables)).toml)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "inherit from it" in line]

    assert told("metrics", "parted") == []
    for name in ("b", "a"):
        sql.execute(f"CREATE TABLE metrics_{name} (PRIMARY KEY (id)) INHERITS (metrics)")
    (line,) = told("metrics")
    assert "public.metrics delivers no rows of tables that inherit from it: public.metrics_a and 1 more. To" in line
    (line,) = told("metrics", "metrics_a")
    assert "from it: public.metrics_b. To" in line
    assert told("metrics*") == []
