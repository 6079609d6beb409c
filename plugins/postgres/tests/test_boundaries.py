"""Schema boundaries: rows that exist get the values that a change of their table gives them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres import boundaries, planner
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql, table_of
from cdc_testing.schema_load import play

from cdc_core import Op


def create(sql: Sql, rows: int = 100, *, name: str = "t") -> str:
    """Create a table and return its name."""
    sql.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, name varchar(20), "
        "twice int GENERATED ALWAYS AS (id * 2) STORED)"
    )
    sql.execute(f"INSERT INTO {name} SELECT g, g, 'n' FROM generate_series(1, %s) g", [rows])
    return name


def table(sql: Sql, name: str = "t") -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of a table without its virtual columns."""
    (columns,) = sql.execute(
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated <> 'v'",
        [name],
    ).fetchone() or ("",)
    return table_of(sql, f"SELECT {columns} FROM {name}")


def scanned(feed: Feed) -> int:
    """Return how many rows the initial scan or a backfill has brought."""
    return sum(change.op is Op.SCAN for change in feed.changes)


def test_a_column_added_and_dropped_at_once_leaves_no_trace_in_rows_of_the_log(database: str, sql: Sql) -> None:
    create(sql)
    with caught_up(database, "t") as feed:
        sql.execute("ALTER TABLE t ADD COLUMN c int")
        sql.execute("UPDATE t SET c = 1 WHERE id = 1")
        sql.execute("ALTER TABLE t DROP COLUMN c")
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)


def test_a_change_while_no_run_was_there_is_found_at_the_next_start(database: str, sql: Sql) -> None:
    create(sql)
    with caught_up(database, "t") as feed:
        feed.close()
        sql.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        sql.execute("UPDATE t SET c = 8 WHERE id = 5")
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)


def test_a_change_is_found_again_when_the_step_that_found_it_is_planned_again(database: str, sql: Sql) -> None:
    create(sql)
    with caught_up(database, "t") as feed:
        sql.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        assert feed.plan()
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)


@pytest.mark.parametrize("query", ["_attributes", "_files"])
def test_a_change_in_the_middle_of_a_comparison_is_found(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    create(sql)
    read, altered = getattr(boundaries, query), False

    def alter_and_read(*arguments: Any) -> Any:
        nonlocal altered
        if not altered:
            altered = True
            sql.execute("ALTER TABLE t ADD COLUMN c text DEFAULT gen_random_uuid()::text")
        return read(*arguments)

    with caught_up(database, "t") as feed:
        sql.execute("CREATE INDEX ON t (v)")
        monkeypatch.setattr(boundaries, query, alter_and_read)
        feed.catch_up()
        feed.catch_up()
        assert altered
        assert feed.rows("public.t") == table(sql)


def test_a_restart_in_the_middle_of_a_backfill_continues_it(database: str, sql: Sql) -> None:
    create(sql, rows=3000)
    with caught_up(database, "t", bytes_=100_000) as feed:
        sql.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        feed.steps_until(lambda: scanned(feed) > 3500)
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)
        assert scanned(feed) == 6000


def test_a_table_altered_in_the_middle_of_the_scan_is_read_from_its_beginning(database: str, sql: Sql) -> None:
    create(sql, rows=3000)
    sql.execute("CREATE TABLE u AS SELECT id, v FROM t")
    sql.execute("ALTER TABLE u ADD PRIMARY KEY (id)")
    with started(database, "t", "u", bytes_=100_000) as feed:
        feed.steps_until(lambda: scanned(feed) > 4000)
        sql.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        sql.execute("ALTER TABLE u ADD COLUMN c int DEFAULT 8")
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)
        assert feed.rows("public.u") == table(sql, "u")


@pytest.mark.parametrize("first", ["t", "u"])
def test_only_the_changed_table_is_read_again(database: str, sql: Sql, first: str) -> None:
    create(sql)
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    sql.execute("INSERT INTO u SELECT generate_series(1, 50)")
    with caught_up(database, "t", "u") as feed:
        sql.execute(f"ALTER TABLE {first} ADD COLUMN c int DEFAULT 7")
        feed.catch_up()
        assert scanned(feed) == 150 + {"t": 100, "u": 50}[first]


@pytest.mark.parametrize("partitioned", [False, True])
def test_nothing_is_resolved_while_a_table_may_be_changing(database: str, sql: Sql, partitioned: bool) -> None:
    if partitioned:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
        sql.execute("CREATE TABLE t0 PARTITION OF t FOR VALUES FROM (0) TO (1000)")
        sql.execute("INSERT INTO t VALUES (1, 1)")
    else:
        create(sql)
    sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
    with caught_up(database, "t", "u") as feed, psycopg.connect(database) as other:
        other.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
        begun = feed.now()
        for number in range(20):
            sql.execute("INSERT INTO u VALUES (%s)", [number])
            feed.step()
        assert len(feed.rows("public.u")) == 20
        assert max(feed.resolved.values()) < begun
        other.commit()
        feed.catch_up()
        assert feed.rows("public.t") == table(sql)


def test_whoever_keeps_marks_waiting_is_named(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(sql)
    monkeypatch.setattr(planner, "_TELL_AFTER_S", 0.0)
    with caught_up(database, "t") as feed, psycopg.connect(database) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        for _ in range(2):
            sql.execute("SELECT pg_logical_emit_message(true, 'test', 'the log goes on')")
            feed.step()
        told = f"t is locked as if by ALTER TABLE, and may be changing: process {other.info.backend_pid} holds the lock"
        assert sum(told in record.getMessage() for record in caplog.records) == 1
        other.rollback()
        feed.catch_up()


@pytest.mark.slow
def test_every_mark_shows_one_moment_of_tables_that_are_altered_and_written(database: str) -> None:
    report = play(database, seed=1, statements=12)
    assert not report.faults
    assert report.altered.total() >= 12
    assert report.compared >= 8
