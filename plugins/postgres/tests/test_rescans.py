"""Tables, and parts of them, that are read again while changes continue."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_testing.feeding import Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql, table_of, writing

from cdc_core import ConfigError, Op, Rescan, SchemaChangeRules, TerminalRangefeedError


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    for name in ("t", "u"):
        sql.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, v text)")
        sql.execute(f"INSERT INTO {name} SELECT g, g % 10, '{name}' FROM generate_series(1, 1000) g")


def full(sql: Sql, table: str) -> str:
    return f"{sql.info.dbname}.public.{table}"


def scanned(feed: Feed, since: int) -> list[tuple[str, int]]:
    """Return table and id of each row that was read again after the first *since* changes."""
    return sorted((change.table, change.key[0]) for change in feed.changes[since:] if change.op is Op.SCAN)


def ids(table: str, *found: int) -> list[tuple[str, int]]:
    return [(f"public.{table}", id_) for id_ in found]


def test_a_rescan_is_complete_that_begins_while_a_snapshot_for_another_one_is_awaited(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed, psycopg.connect(database) as other:
        known = len(feed.changes)
        sql.execute("CREATE TABLE w (id int)")
        other.execute("INSERT INTO w VALUES (1)")  # a snapshot waits for the end of this transaction
        for table in ("t", "u"):
            feed.ask(Rescan(table=full(sql, table)))
            sql.execute(f"UPDATE {table} SET v = 'meanwhile' WHERE id = 1")
            feed.step()
        other.rollback()
        feed.catch_up()
        assert scanned(feed, known) == ids("t", *range(1, 1001)) + ids("u", *range(1, 1001))


def test_parts_of_a_table_that_is_being_scanned_do_not_replace_the_scan(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        feed.ask(Rescan(table=full(sql, "t"), where="id < 3"), Rescan(table=full(sql, "t"), where="id = 2"))
        feed.catch_up()
        assert scanned(feed, 0) == ids("t", 1, 1, 2, 2, 2, *range(3, 1001))
        keys = {(change.step, change.key): 0 for change in feed.changes}
        assert len(keys) == len(feed.changes), "no step has a key twice"


def test_a_whole_table_takes_the_place_of_its_parts(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u") as feed:
        known = len(feed.changes)
        feed.ask(Rescan(table=full(sql, "t"), where="id < 3"), Rescan(table=full(sql, "t")))
        feed.step()
        feed.catch_up()
        assert scanned(feed, known) == ids("t", *range(1, 1001))


def test_changes_continue_in_order_while_a_table_is_read_again(database: str, sql: Sql) -> None:
    busy = threading.Event()

    def write(connection: Sql, n: int) -> None:
        id_ = n % 1500 + 1
        connection.execute("INSERT INTO t VALUES (%s, 0, 'n') ON CONFLICT (id) DO UPDATE SET n = t.n + 1", [id_])
        if n % 7 == 0:
            connection.execute("DELETE FROM t WHERE id = %s", [id_])
        if n > 300:
            busy.set()

    with caught_up(database, "t", options={"scan_round": 0.05}) as feed:
        with writing(database, write):
            for where in (None, "n > 0", None):
                assert busy.wait(300)
                known = len(feed.changes)
                feed.ask(Rescan(table=full(sql, "t"), where=where))
                feed.step()
                feed.steps_until(lambda: feed.token["scan"] is None)
                assert len(scanned(feed, known)) > 100
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_a_rescan_survives_a_restart_and_does_not_read_finished_parts_again(database: str, sql: Sql) -> None:
    with caught_up(database, "t", bytes_=40_000) as feed:
        known = len(feed.changes)
        feed.ask(Rescan(table=full(sql, "t"), where="id % 2 = 0"))
        feed.step()
        feed.steps_until(lambda: len(scanned(feed, known)) > 100)
        feed.restart()
        feed.catch_up()
        assert scanned(feed, known) == ids("t", *range(2, 1001, 2))


def test_the_partitions_of_a_table_are_read_again(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    for number in (0, 10):
        sql.execute(f"CREATE TABLE p{number} PARTITION OF p FOR VALUES FROM ({number}) TO ({number + 10})")
    sql.execute("INSERT INTO p SELECT g, 'v' FROM generate_series(1, 19) g")
    with caught_up(database, "p") as feed:
        known = len(feed.changes)
        feed.ask(Rescan(table=full(sql, "p"), where="id BETWEEN 8 AND 11 OR id = 12 -- not 13"))
        feed.step()
        feed.catch_up()
        assert scanned(feed, known) == ids("p", 8, 9, 10, 11, 12)


def test_a_rescan_waits_while_a_table_is_being_altered(database: str, sql: Sql) -> None:
    with caught_up(database, "t") as feed:
        known = len(feed.changes)
        feed.ask(Rescan(table=full(sql, "t"), where="id = 1"))
        with psycopg.connect(database) as other:
            other.execute("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'x'")
            assert feed.planner.scan_again(feed.token, [Rescan(table=None)]) is None
            feed.step()
        feed.catch_up()
        assert scanned(feed, known) == ids("t", 1)


@pytest.mark.parametrize(("partitioned", "where"), [("PARTITION BY RANGE (id)", "id = 1"), ("", None)])
def test_a_table_without_partitions_or_rows_has_nothing_to_read(
    database: str, sql: Sql, partitioned: str, where: str | None
) -> None:
    sql.execute(f"CREATE TABLE w (id int PRIMARY KEY) {partitioned}")
    with started(database, "w") as feed:
        rescan = Rescan(table=full(sql, "w"), where=where)
        feed.planner.check_rescan(rescan)
        assert feed.planner.scan_again(feed.token, [rescan]) == feed.token
        feed.catch_up()


def test_a_table_that_left_is_not_read_again(database: str, sql: Sql) -> None:
    with started(database, "t") as feed:
        assert feed.planner.scan_again(feed.token, [Rescan(table=full(sql, "u"))]) == feed.token


def test_a_predicate_that_is_none_is_refused(database: str, sql: Sql) -> None:
    with feed_of(database, "t") as feed:
        for where, reason in (
            ("region = 'eu'", 'column "region" does not exist'),
            ("n +", "syntax error"),
            ("n", "must be type boolean"),
            ("true) OR (true", "syntax error"),
            ("true] OR [true", "syntax error"),
            ("true; DROP TABLE t", "syntax error"),
            ("true) LIMIT 0; DROP TABLE t; SELECT (true", "syntax error"),
            ("id = $1", "supplies 0 parameters"),
            ("count(*) > 0", "aggregate functions"),
            ("/* open", "unterminated"),
        ):
            with pytest.raises(ConfigError, match=rf"table .*public\.t: PostgreSQL refuses the predicate .*{reason}"):
                feed.planner.check_rescan(Rescan(table=full(sql, "t"), where=where))
    assert sql.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_a_predicate_changes_nothing_when_it_is_checked(database: str, sql: Sql) -> None:
    sql.execute("CREATE SEQUENCE s")
    sql.execute("CREATE FUNCTION writes() RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT nextval('public.s') > 0 $$")
    with feed_of(database, "t") as feed:
        with pytest.raises(ConfigError, match="cannot execute nextval"):
            feed.planner.check_rescan(Rescan(table=full(sql, "t"), where="public.writes()"))
        feed.planner.check_rescan(Rescan(table=full(sql, "t"), where="n % 2 = 0 AND v LIKE '%x'"))
        feed.planner.check_rescan(Rescan(table=None))
    assert sql.execute("SELECT is_called FROM s").fetchone() == (False,)


def test_an_unknown_table_is_refused_with_the_likely_one(database: str, sql: Sql) -> None:
    with feed_of(database, "t") as feed, pytest.raises(ConfigError, match=r"is not watched; did you mean .*public\.t"):
        feed.planner.check_rescan(Rescan(table=full(sql, "tt")))


@pytest.mark.parametrize(
    ("where", "change"), [("n > 0", "ALTER TABLE t DROP COLUMN n"), ("1 / n > 0", "UPDATE t SET n = 0 WHERE id = 500")]
)
def test_a_predicate_that_fails_later_ends_the_changefeed_until_all_is_asked_for(
    database: str, sql: Sql, where: str, change: str
) -> None:
    sql.execute("UPDATE t SET n = 1")
    with caught_up(database, "t", schema_changes=SchemaChangeRules(policy="nobackfill")) as feed:
        sql.execute(change)
        feed.ask(Rescan(table=full(sql, "t"), where=where))
        with pytest.raises(TerminalRangefeedError, match=r"predicate .* fails.* the whole table: .cdc rescan. without"):
            feed.catch_up()
        feed.ask(Rescan(table=full(sql, "t")))
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


@pytest.mark.parametrize("listed", ["t", "public.*"])
def test_a_renamed_table_is_read_again_by_the_name_under_which_it_is_followed(
    database: str, sql: Sql, listed: str
) -> None:
    with caught_up(database, listed) as feed:
        sql.execute("ALTER TABLE t RENAME TO w")
        feed.catch_up()
        known = len(feed.changes)
        rescan = Rescan(table=full(sql, "t"), where="id < 3")
        with closing(PostgresPlanner(replace(feed.context, saved=feed.token))) as planner:
            planner.check_rescan(rescan)
            with pytest.raises(ConfigError, match=r"table .*public\.w is not watched"):
                planner.check_rescan(Rescan(table=full(sql, "w")))
        feed.ask(rescan)
        feed.step()
        feed.catch_up()
        assert scanned(feed, known) == ids("t", 1, 2)


def test_a_rescan_of_all_tables_leaves_out_a_dropped_one(database: str, sql: Sql) -> None:
    with caught_up(database, "public.*") as feed:
        known = len(feed.changes)
        sql.execute("DROP TABLE u")
        with closing(PostgresPlanner(replace(feed.context, saved=feed.token))) as planner:
            planner.check_rescan(Rescan(table=None))
            with pytest.raises(ConfigError, match=r"table .*public\.u is not watched"):
                planner.check_rescan(Rescan(table=full(sql, "u")))
        again = feed.planner.scan_again(feed.token, [Rescan(table=None), Rescan(table=full(sql, "u"))])
        assert again is not None
        assert {part[0] for part in again["scan"]["parts"]} == {sorted(again["tables"]).index("public.t")}
        assert len(feed.changes) == known


def test_rows_of_other_tables_arrive_while_a_table_that_is_read_again_is_locked(database: str, sql: Sql) -> None:
    with caught_up(database, "t", "u", bytes_=40_000) as feed, psycopg.connect(database) as other:
        known = len(feed.changes)
        feed.ask(Rescan(table=full(sql, "t")))
        feed.step()
        other.execute("LOCK TABLE t")
        sql.execute("UPDATE u SET v = 'meanwhile' WHERE id = 1")
        feed.steps_until(lambda: feed.rows("public.u")[(1,)]["v"] == "meanwhile")
        other.rollback()
        feed.catch_up()
        assert {found for _, found in scanned(feed, known)} == set(range(1, 1001))
