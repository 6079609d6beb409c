"""Generated columns: stored ones arrive where the server publishes them; the others are left out, or null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql

from cdc_core import Op

LARGE = "x" * 9000


def columns(feed: Feed) -> list[str]:
    return [column.name for column in feed.rangefeed.schemas()[0].columns]


def create(sql: Sql) -> None:
    sql.execute(
        "CREATE TABLE t (twice int GENERATED ALWAYS AS (n * 2) STORED, id int PRIMARY KEY, "
        "more numeric GENERATED ALWAYS AS (n + 1) VIRTUAL, n int, "
        "pad text, size int GENERATED ALWAYS AS (length(pad)) STORED)"
    )
    sql.execute("ALTER TABLE t ALTER pad SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t (id, n, pad) VALUES (1, 10, %s), (2, 20, 'b')", [LARGE])


@pytest.mark.parametrize("virtual_columns", ["omitted", "null"])
def test_scan_and_log_have_the_stored_columns(
    database: str, sql: Sql, virtual_columns: Literal["omitted", "null"]
) -> None:
    more: dict[str, Any] = {"more": None} if virtual_columns == "null" else {}
    create(sql)
    with started(database, "t", options={"virtual_columns": virtual_columns}) as feed:
        assert columns(feed) == ["twice", "id", "n", "pad", "size", *more]
        feed.scan()
        sql.execute("UPDATE t SET n = 11 WHERE id = 1")
        sql.execute("DELETE FROM t WHERE id = 2")
        feed.catch_up()
        feed.restart()
        sql.execute("INSERT INTO t (id, n, pad) VALUES (3, 30, 'c')")
        feed.catch_up()
        assert [(change.op, change.key, change.after) for change in feed.changes] == [
            (Op.SCAN, (1,), {"twice": 20, "id": 1, "n": 10, "pad": LARGE, "size": 9000, **more}),
            (Op.SCAN, (2,), {"twice": 40, "id": 2, "n": 20, "pad": "b", "size": 1, **more}),
            (Op.UPDATE, (1,), {"twice": 22, "id": 1, "n": 11, "size": 9000, **more}),
            (Op.DELETE, (2,), None),
            (Op.INSERT, (3,), {"twice": 60, "id": 3, "n": 30, "pad": "c", "size": 1, **more}),
        ]
        assert {change.version for change in feed.changes} == {1}


@pytest.mark.parametrize("virtual_columns", ["omitted", "null"])
def test_a_virtual_column_that_is_added_gives_rows_a_new_shape_only_as_nulls(
    database: str, sql: Sql, virtual_columns: Literal["omitted", "null"]
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with started(database, "t", options={"virtual_columns": virtual_columns}) as feed:
        sql.execute("INSERT INTO t VALUES (1)")
        feed.catch_up()
        sql.execute("ALTER TABLE t ADD half int GENERATED ALWAYS AS (id / 2) VIRTUAL")
        sql.execute("INSERT INTO t VALUES (2)")
        feed.catch_up()
        null = virtual_columns == "null"
        assert feed.changes[-1].after == ({"id": 2, "half": None} if null else {"id": 2})
        assert feed.changes[-1].version == (2 if null else 1)
        sql.execute("ALTER TABLE t DROP half")
        sql.execute("INSERT INTO t VALUES (3)")
        feed.catch_up()
        assert feed.changes[-1].after == {"id": 3}


def test_old_rows_have_stored_and_null_columns_too(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with caught_up(database, "t", checked=True, diff=True) as feed:
        sql.execute("INSERT INTO t VALUES (1, 1)")
        sql.execute("UPDATE t SET n = 2")
        sql.execute("DELETE FROM t")
        feed.catch_up()
        assert [(change.before, change.after) for change in feed.changes] == [
            (None, {"id": 1, "n": 1, "twice": 2}),
            ({"id": 1, "n": 1, "twice": 2}, {"id": 1, "n": 2, "twice": 4}),
            ({"id": 1, "n": 2, "twice": 4}, None),
        ]


def test_a_stored_column_can_be_the_key(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (n int NOT NULL, id int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    with caught_up(database, "t", checked=True) as feed:
        sql.execute("UPDATE t SET n = 2")
        feed.catch_up()
        assert feed.rows("public.t") == {(4,): {"n": 2, "id": 4}}


@pytest.mark.parametrize("virtual_columns", ["omitted", "null"])
def test_before_version_18_no_generated_column_is_in_the_log(
    postgres_version: Callable[[int], EmbeddedPostgres], virtual_columns: Literal["omitted", "null"]
) -> None:
    twice: dict[str, Any] = {"twice": None} if virtual_columns == "null" else {}
    uri = postgres_version(17).uri()
    with psycopg.connect(uri, autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, n int)")
        sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        sql.execute("INSERT INTO t (id, n) VALUES (1, 1)")
        with caught_up(uri, "t", checked=True, diff=True, options={"virtual_columns": virtual_columns}) as feed:
            sql.execute("UPDATE t SET n = 2")
            feed.catch_up()
            assert [change.after for change in feed.changes] == [{"id": 1, "n": 1, **twice}, {"id": 1, "n": 2, **twice}]
            assert feed.changes[-1].before == {"id": 1, "n": 1, **twice}
        sql.execute("DROP TABLE t")
