"""A source with endpoints: the closest one that can decode is read, and what only the primary can do is done there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.documented_role import ROLE, documented
from cdc_testing.feeding import Feed, feed_of, started
from cdc_testing.postgres import Sql, table_of
from cdc_testing.runs import eventually
from cdc_testing.standby import slot_is_synchronized, standby_of
from cdc_testing.versions import UnavailableError, binaries_of

from cdc_core import (
    ConfigError,
    HistoryLostError,
    Locality,
    Op,
    RestartError,
    Restriction,
    RetryableRangefeedError,
    TableSchema,
    Token,
)
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query

HERE = Locality.parse("region=eu,zone=a")
DEAD = {"uri": "postgresql://me:hunter2@127.0.0.1:1/postgres", "locality": "region=eu,zone=a"}
SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'"


@pytest.fixture
def primary(pair: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> EmbeddedPostgres:
    return pair[0]


@pytest.fixture
def standby(pair: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> EmbeddedPostgres:
    return pair[1]


@pytest.fixture
def sql(primary: EmbeddedPostgres) -> Iterator[Sql]:
    """A connection to the primary, with a table of 100 rows."""
    with psycopg.connect(primary.uri(), autocommit=True) as connection:
        create(connection)
        permit(connection)
        yield connection
        connection.execute("DROP TABLE t")


def endpoint(server: EmbeddedPostgres, locality: str) -> dict[str, str]:
    return {"uri": documented(server.uri()), "locality": locality}


def place(server: EmbeddedPostgres) -> str:
    return f"127.0.0.1:{server.port}/postgres"


def rows(server: EmbeddedPostgres, query: str) -> list[Any]:
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        return connection.execute(query).fetchall()


def is_complete(feed: Feed, sql: Sql) -> bool:
    feed.catch_up()
    return feed.rows("public.t") == table_of(sql, "SELECT * FROM t")


def test_slot_scan_and_log_are_on_the_closest_endpoint_and_the_publication_is_on_the_primary(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql
) -> None:
    endpoints = (endpoint(primary, "region=us"), endpoint(standby, "region=eu"))
    with started(primary.uri(), "*", checked=True, options={"endpoints": endpoints}, locality=HERE) as feed:
        assert feed.token["endpoint"] == place(standby)
        assert is_complete(feed, sql)
        assert sum(change.op is Op.SCAN for change in feed.changes) == 100
        assert (rows(primary, SLOTS), len(rows(standby, SLOTS))) == ([], 1)
        sql.execute("UPDATE t SET v = -v WHERE id <= 10")
        feed.restart()
        sql.execute("DELETE FROM t WHERE id = 20")
        assert is_complete(feed, sql)
        sql.execute("CREATE TABLE u (id int PRIMARY KEY)")
        sql.execute("INSERT INTO u VALUES (1)")
        with pytest.raises(RestartError, match=r"new tables matched.*: public\.u"):
            feed.catch_up()
        feed.restart()
        feed.catch_up()
        assert feed.rows("public.u") == {(1,): {"id": 1}}
        assert [entry.name for entry in feed.rangefeed.created()] == [
            f"cdc_test_{feed.context.feed_id}",
            f"cdc_test_{feed.context.feed_id} at {place(standby)}",
        ]
    assert (rows(primary, SLOTS), rows(standby, SLOTS)) == ([], [])
    assert rows(primary, "SELECT pubname FROM pg_publication") == []
    sql.execute("DROP TABLE u")


def test_endpoints_that_cannot_be_read_are_named_and_the_next_one_is_read(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = {"endpoints": (endpoint(standby, "region=eu"), DEAD)}
    with feed_of(primary.uri(), "t", options=options, locality=HERE) as feed:
        feed.rangefeed.check()
        assert "does not read from endpoint 127.0.0.1:1/postgres (region=eu,zone=a): cannot connect: " in caplog.text
        assert f"reads from endpoint {place(standby)} (region=eu), the closest to region=eu,zone=a" in caplog.text
        feed.start()
        assert feed.token["endpoint"] == place(standby)
        assert feed.planner.now() > feed.latest
    assert caplog.text.count("127.0.0.1:1/postgres cannot be reached") == 1
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("here", [Locality(), Locality.parse("region=us")])
def test_without_a_close_endpoint_the_source_is_read(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql, here: Locality, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = {"endpoints": (endpoint(standby, "region=eu"),)}
    with started(primary.uri(), "t", checked=True, options=options, locality=here) as feed:
        assert "endpoint" not in feed.token
        assert len(rows(primary, SLOTS)) == 1
    assert f"reads from the source, {place(primary)}, because " in caplog.text


def test_a_failover_slot_is_on_the_source_because_only_slots_of_the_primary_are_synchronized(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = {"endpoints": (endpoint(standby, "region=eu"),), "failover": True}
    with feed_of(primary.uri(), "t", options=options, locality=HERE) as feed:
        feed.rangefeed.check()
    assert "(region=eu): the server is a standby, but only the primary's slots are synchronized" in caplog.text


def test_row_filters_are_set_on_the_primary_and_hold_on_the_endpoint(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql
) -> None:
    filters = "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel WHERE prqual IS NOT NULL"
    on: dict[str, Any] = {"endpoints": (endpoint(standby, "region=eu"),), "row_filter": True}
    off = {**on, "row_filter": False}
    context: dict[str, Any] = {"locality": HERE, "initial_scan": False}
    with started(primary.uri(), "t", checked=True, options=on, restriction=wanting("id > 1000"), **context) as feed:
        assert feed.token["endpoint"] == place(standby)
        assert (rows(primary, filters), rows(standby, filters)) == ([("(id > 1000)",)],) * 2
        sql.execute("INSERT INTO t VALUES (500, 0), (1001, 0)")
        feed.catch_up()
        assert set(feed.rows("public.t")) == {(1001,)}
        feed.resume(uri="postgresql://me:hunter2@127.0.0.1:1/postgres")  # what is set remains without the primary
        with pytest.raises(RetryableRangefeedError, match=r"the primary, 127\.0\.0\.1:1/postgres, to change the publ"):
            feed.resume(options=off)
        feed.resume(uri=documented(primary.uri()))
        assert rows(standby, filters) == []
        sql.execute("INSERT INTO t VALUES (501, 0), (1002, 0)")
        feed.catch_up()
        assert set(feed.rows("public.t")) == {(501,), (1001,), (1002,)}
        feed.resume(options=on, restriction=wanting("id > 400"))
        assert rows(standby, filters) == [("(id > 400)",)]
        sql.execute("INSERT INTO t VALUES (300, 0), (502, 0)")
        feed.catch_up()
        assert set(feed.rows("public.t")) >= {(500,), (501,), (502,), (1001,), (1002,)}
        assert (300,) not in feed.rows("public.t")


def wanting(condition: str) -> Callable[[TableSchema], Restriction]:
    return partial(restriction_of, parse_query(f"SELECT * FROM t WHERE {condition}"))


def test_an_endpoint_of_another_system_or_database_is_refused(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql
) -> None:
    with (
        EmbeddedPostgres(settings={"fsync": "off"}) as other,  # a CopiedPostgres has the same identifier
        feed_of(primary.uri(), "t", options={"endpoints": (endpoint(other, "region=eu"),)}, locality=HERE) as feed,
        pytest.raises(ConfigError, match=r"belongs to a different database system than the source, 127\.0\.0\.1"),
    ):
        feed.rangefeed.check()
    options = {"endpoints": ({"uri": documented(standby.uri("template1")), "locality": "region=eu"},)}
    with (
        feed_of(primary.uri(), "t", options=options, locality=HERE) as feed,
        pytest.raises(ConfigError, match="is database template1, but the source is database postgres"),
    ):
        feed.rangefeed.check()


def test_a_changefeed_stays_where_its_slot_is(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    endpoints = (endpoint(standby, "region=eu"), endpoint(primary, "region=us"))
    with started(primary.uri(), "t", options={"endpoints": endpoints}, locality=HERE) as feed:
        elsewhere: dict[str, Any] = {"feed_id": feed.context.feed_id, "locality": Locality.parse("region=us")}
        feed.close()
        with feed_of(primary.uri(), "t", options={"endpoints": endpoints}, **elsewhere) as moved:
            moved.saved, moved.state = feed.saved, feed.state
            moved.start()
            assert moved.token["endpoint"] == place(standby)
            assert is_complete(moved, sql)
            assert (
                f"reads from {place(standby)}, which has the slot, although {place(primary)} is closer" in caplog.text
            )
            moved.close()
            with (
                feed_of(primary.uri(), "t", **elsewhere) as unlisted,
                pytest.raises(HistoryLostError, match="which option 'endpoints' no longer lists"),
            ):
                unlisted.rangefeed.start(moved.saved, lambda _: None)


def test_what_a_crashed_start_had_created_on_another_endpoint_is_removed(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, sql: Sql
) -> None:
    options = {"endpoints": (endpoint(standby, "region=eu"),)}
    saved: list[Token] = []
    with feed_of(primary.uri(), "t", options=options, locality=HERE) as crashed:
        crashed.rangefeed.start(None, saved.append)
        crashed.rangefeed.close()
        assert len(rows(standby, SLOTS)) == 1
        with feed_of(primary.uri(), "t", options=options, feed_id=crashed.context.feed_id) as feed:
            feed.saved = saved[0]
            feed.start()
            assert (len(rows(primary, SLOTS)), rows(standby, SLOTS)) == (1, [])
            assert is_complete(feed, sql)


def test_an_endpoint_that_dies_is_named_and_a_new_slot_is_on_the_source(caplog: pytest.LogCaptureFixture) -> None:
    with (
        CopiedPostgres(settings={"fsync": "off", "synchronous_commit": "remote_apply"}) as primary,
        psycopg.connect(primary.uri(), autocommit=True) as sql,
        standby_of(primary) as standby,
    ):
        create(sql)
        permit(sql)
        options = {"endpoints": (endpoint(standby, "region=eu"),)}
        with started(primary.uri(), "t", options=options, locality=HERE) as feed:
            assert is_complete(feed, sql)
            sql.execute("ALTER SYSTEM RESET synchronous_standby_names")
            sql.execute("SELECT pg_reload_conf()")
            standby.kill()
            lost = f"endpoint {place(standby)} cannot be reached .* no other endpoint has replication slot .*--new-slot"
            with pytest.raises(RetryableRangefeedError):
                feed.step()
            with (
                closing(PostgresPlanner(replace(feed.context, saved=feed.saved))) as planner,
                pytest.raises(RetryableRangefeedError, match="reading the clock"),
            ):
                planner.now()
            with pytest.raises(RetryableRangefeedError, match=lost):
                feed.rangefeed.start(feed.saved, lambda _: None)
            with pytest.raises(ConfigError, match=lost):
                feed.restart()
            feed.rangefeed.drop(feed.saved)  # as a rescan with a new slot does
            assert f"{place(standby)} cannot be reached: " in caplog.text
            feed.saved = None
            feed.restart()
            assert "endpoint" not in feed.token
            sql.execute("DELETE FROM t WHERE id < 10")
            assert is_complete(feed, sql)


@pytest.mark.slow
def test_a_promoted_endpoint_that_has_the_failover_slot_continues_and_publishes() -> None:
    with (
        CopiedPostgres(settings={"fsync": "off"}) as primary,
        psycopg.connect(primary.uri(), autocommit=True) as sql,
        standby_of(primary) as standby,
    ):
        create(sql)
        permit(sql)
        options = {"endpoints": (endpoint(standby, "region=eu"),), "failover": True}
        with started(primary.uri(), "*", options=options, locality=HERE) as feed:
            assert "endpoint" not in feed.token
            assert is_complete(feed, sql)
            slot = f"cdc_test_{feed.context.feed_id}"
            eventually("the slot on the standby", lambda: slot_is_synchronized(standby, slot))
            primary.kill()
            with pytest.raises(ConfigError, match=r"the source .* cannot be reached .* has replication slot"):
                feed.restart()
            with psycopg.connect(standby.uri(), autocommit=True) as promoted:
                promoted.execute("SELECT pg_promote()")
                promoted.execute("UPDATE t SET v = 0 WHERE id <= 5")
                feed.restart()
                assert feed.token["endpoint"] == place(standby)
                assert is_complete(feed, promoted)
                promoted.execute("CREATE TABLE u (id int PRIMARY KEY)")
                with pytest.raises(RestartError, match=r"new tables matched.*: public\.u"):
                    feed.catch_up()


@pytest.mark.slow
@pytest.mark.parametrize("major", [15, 16, 17])
def test_an_endpoint_is_read_since_version_16(major: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    try:
        binaries = binaries_of(major)
    except UnavailableError as error:
        pytest.skip(str(error))
    settings = {"fsync": "off", "synchronous_commit": "remote_apply"}
    with (
        CopiedPostgres(settings=settings, binaries=binaries) as primary,
        psycopg.connect(primary.uri(), autocommit=True) as sql,
        standby_of(primary) as standby,
    ):
        create(sql)
        options = {"endpoints": (endpoint(standby, "region=eu"),)}
        with started(primary.uri(), "t", checked=True, options=options, locality=HERE) as feed:
            assert feed.token.get("endpoint", "") == (place(standby) if major >= 16 else "")
            assert is_complete(feed, sql)
            sql.execute("DELETE FROM t WHERE id < 10")
            assert is_complete(feed, sql)
    assert ("logical decoding on a standby needs 16 or newer" in caplog.text) == (major < 16)


def create(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")


def permit(sql: Sql) -> None:
    """Let the changefeed ask for records of running transactions: otherwise each wait takes up to 15 seconds."""
    sql.execute(f"GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO {ROLE}")
