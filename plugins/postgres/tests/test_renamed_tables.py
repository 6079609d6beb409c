"""Tables that are renamed, or moved to another schema, while a changefeed follows them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from cdc_testing.feeding import Feed, caught_up, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import ConfigError, Op, TerminalRangefeedError


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text, body text)")
    sql.execute("ALTER TABLE t ALTER COLUMN body SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t SELECT g, 't', repeat('x', 5000) FROM generate_series(1, 100) g")


@pytest.fixture(params=["t", pytest.param("public.*", marks=pytest.mark.slow)])
def feed(request: pytest.FixtureRequest, database: str) -> Iterator[Feed]:
    with caught_up(database, request.param, options={"unchanged_toast": "lookup"}) as feed:
        yield feed


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER TABLE t RENAME TO w", "public.w"),
        ("CREATE SCHEMA other; ALTER TABLE t SET SCHEMA other", "other.t"),
    ],
)
def test_a_renamed_table_is_followed_under_its_old_name(
    feed: Feed, sql: Sql, statement: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
    sql.execute(statement)
    sql.execute(f"UPDATE {name} SET v = 'after' WHERE id = 2")
    feed.catch_up()
    sql.execute(f"INSERT INTO {name} VALUES (1000, 'new')")
    feed.catch_up()
    assert feed.rows("public.t") == table_of(sql, f"SELECT * FROM {name}")
    assert {change.table for change in feed.changes} == {"public.t"}
    assert caplog.text.count(f"table public.t is now called {name}; still following it under its old name") == 1
    feed.restart()
    sql.execute(f"DELETE FROM {name} WHERE id = 3")
    feed.catch_up()
    assert feed.rows("public.t") == table_of(sql, f"SELECT * FROM {name}")
    assert {
        change.table for change in feed.changes if change.op is Op.SCAN and change.updated > feed.changes[0].updated
    } == set()


def test_a_table_that_is_renamed_while_the_changefeed_is_stopped_is_followed(feed: Feed, sql: Sql) -> None:
    feed.close()
    sql.execute("ALTER TABLE t RENAME TO w")
    sql.execute("UPDATE w SET v = 'after' WHERE id = 2")
    feed.restart()
    feed.catch_up()
    assert feed.rows("public.t") == table_of(sql, "SELECT * FROM w")


def test_a_table_that_is_renamed_in_the_middle_of_its_scan_is_read_to_the_end(database: str, sql: Sql) -> None:
    sql.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(101, 2000) g")
    with started(database, "t", bytes_=100_000) as feed:
        feed.steps_until(lambda: len(feed.changes) > 500)
        sql.execute("ALTER TABLE t RENAME TO w")
        sql.execute("UPDATE w SET v = 'after' WHERE id = 2")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM w")


def test_a_scan_never_reads_another_table_that_took_the_name(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        slices = feed.plan_scan()
        sql.execute("ALTER TABLE t RENAME TO w")
        sql.execute("CREATE TABLE t AS SELECT 5 AS id, 'wrong' AS v, '' AS body")
        with pytest.raises(Exception, match=r"table public\.t was rewritten during its scan"):
            list(feed.reader.read(slices[0]))


def test_a_renamed_table_that_still_matches_does_not_join_a_second_time(database: str, sql: Sql) -> None:
    with caught_up(database, "t*") as feed:
        sql.execute("ALTER TABLE t RENAME TO t2")
        feed.catch_up()
        feed.restart()
        sql.execute("UPDATE t2 SET v = 'after'")
        feed.catch_up()
        assert set(feed.token["tables"]) == {"public.t"}


@pytest.mark.parametrize("swapped", [True, False])
def test_watched_tables_that_take_a_name_of_another_keep_their_own(database: str, sql: Sql, *, swapped: bool) -> None:
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, v text, body text); INSERT INTO u SELECT id + 50, 'u' FROM t")
    with caught_up(database, "t", "u") as feed:
        sql.execute("ALTER TABLE t RENAME TO w; ALTER TABLE u RENAME TO t")
        first = "u" if swapped else "w"
        if swapped:
            sql.execute("ALTER TABLE w RENAME TO u")
        feed.catch_up()
        feed.restart()
        sql.execute(f"UPDATE {first} SET v = 'first' WHERE id = 1; DELETE FROM t WHERE id = 150")
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, f"SELECT * FROM {first}")
        assert feed.rows("public.u") == table_of(sql, "SELECT * FROM t")


def test_a_new_table_with_the_old_name_ends_the_changefeed(feed: Feed, sql: Sql) -> None:
    sql.execute("UPDATE t SET v = 'before' WHERE id = 1")
    sql.execute("ALTER TABLE t RENAME TO w")
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    taken = r"table .*public\.t is not the table that the changefeed follows .* now called .*public\.w\. To keep"
    with pytest.raises(TerminalRangefeedError, match=taken):
        feed.catch_up()
    assert feed.rows("public.t")[(1,)]["v"] == "before"
    with pytest.raises(ConfigError, match=taken):
        feed.restart()
    sql.execute("ALTER TABLE t RENAME TO t3")
    if feed.context.tables == ("t",):
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM w")
