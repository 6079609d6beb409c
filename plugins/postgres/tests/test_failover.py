"""A standby is promoted after the primary has died: the changefeed continues there, and nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.demo import account
from cdc_rangefeed_postgres.history import PostgresHistory
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_rangefeed_postgres.timeline import followed
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import table_of, value
from cdc_testing.runs import eventually
from cdc_testing.standby import both_hosts, slot_is_synchronized, standby_of

from cdc_core import ConfigError, HistoryLostError, RetryableRangefeedError


def test_every_acknowledged_row_arrives_after_a_failover() -> None:
    acknowledged: list[int] = []

    def write() -> None:
        """Insert rows one by one until the server dies. A row counts when its commit was acknowledged."""
        try:
            with psycopg.connect(primary.uri(), autocommit=True) as sql:
                for number in range(1000, 1_000_000):
                    sql.execute("INSERT INTO t VALUES (%s, 0)", [number])
                    acknowledged.append(number)
        except psycopg.OperationalError:
            pass

    with CopiedPostgres(settings={"fsync": "off"}) as primary:
        with psycopg.connect(primary.uri(), autocommit=True) as sql:
            sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
            sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 500) g")
        with standby_of(primary) as standby:
            uri = both_hosts(primary, standby)
            with started(uri, "t", options={"failover": True}) as feed:
                feed.scan()
                slot = f"cdc_test_{feed.context.feed_id}"
                eventually("the slot on the standby", lambda: slot_is_synchronized(standby, slot))
                writer = threading.Thread(target=write)
                writer.start()
                feed.steps_until(lambda: len(feed.rows("public.t")) > 700)
                primary.kill()
                writer.join()
                with pytest.raises(RetryableRangefeedError):
                    feed.step()
                with pytest.raises(ConfigError) as unreachable:
                    feed.restart()
                text = str(unreachable.value)
                for port in (primary.port, standby.port):
                    assert f"127.0.0.1:{port}" in text.partition(": ")[0]
                    assert f"port {port} failed: " in text
                assert primary.password not in text
                with psycopg.connect(standby.uri(), autocommit=True) as sql:
                    sql.execute("SELECT pg_promote()")
                    feed.restart()
                    sql.execute("UPDATE t SET n = 1 WHERE id < 10")
                    feed.catch_up()
                    assert {(number,) for number in acknowledged} <= feed.rows("public.t").keys()
                    assert feed.rows("public.t") == table_of(sql, "SELECT id, n FROM t")


def test_standbys_that_the_server_waits_for_are_named() -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        CopiedPostgres(settings={"fsync": "off"}) as server,
        psycopg.connect(server.uri(), autocommit=True) as sql,
    ):
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with caught_up(server.uri(), "t", options={"failover": True}) as feed:
            sql.execute("SELECT pg_create_physical_replication_slot('standby1', true)")
            sql.execute("ALTER SYSTEM SET synchronized_standby_slots = 'standby1'")
            sql.execute("SELECT pg_reload_conf()")
            sql.execute("INSERT INTO t VALUES (1)")
            reading = thread.submit(feed.steps_until, lambda: len(feed.rows("public.t")) == 1)
            with closing(PostgresHistory(replace(feed.context, saved=feed.saved))) as outside:

                def noticed() -> bool:
                    outside.metrics()
                    return outside.notice() is not None

                eventually("the wait is noticed", noticed)
                assert "waits until the standbys in synchronized_standby_slots (standby1)" in str(outside.notice())
            sql.execute("ALTER SYSTEM RESET synchronized_standby_slots")
            sql.execute("SELECT pg_reload_conf()")
            reading.result()


@pytest.mark.parametrize(
    ("saved", "lost"),
    [
        ({"lsn": "FF/0"}, r"the server's log ends at \S+, but changes up to FF/0 were delivered"),
        ({"timeline": 9}, r"the server's log left timeline 9 earlier, but changes up to \S+ were delivered"),
    ],
)
def test_a_log_that_ends_before_what_was_delivered_is_lost_history(
    database: str, saved: dict[str, object], lost: str
) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:
        feed.saved = {**feed.token, **saved}
        with pytest.raises(HistoryLostError, match=lost):
            feed.restart()


def test_what_a_promoted_standby_never_received_is_lost_history_however_long_its_log_has_grown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with CopiedPostgres(settings={"fsync": "off"}) as server:
        with psycopg.connect(server.uri(), autocommit=True) as sql:
            sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with caught_up(server.uri(), "t") as feed:
            server.kill()
            signal = server.directory / "data" / "standby.signal"
            signal.touch()
            account.give(signal)
            server.start()
            source, saved = Server(feed.context), PostgresToken.from_json(feed.token)
            with closing(source.connect("test")) as standby:  # which does not tell its timeline
                assert followed(source, standby, saved, remedy="").timeline == saved.timeline == 1
            with psycopg.connect(server.uri(), autocommit=True) as sql:
                sql.execute("SELECT pg_promote()")
                sql.execute("INSERT INTO t SELECT generate_series(1, 9)")
                token, end = feed.token, value(sql, "SELECT pg_current_wal_flush_lsn()::text")
            feed.saved = {**token, "lsn": end}
            with (
                closing(PostgresPlanner(feed.context)) as planner,
                pytest.raises(RetryableRangefeedError, match="is on timeline 2, and was on 1"),
            ):
                planner.advance(token, after=feed.latest, limit=feed.limit)
            lost = f"log left timeline 1 at .*, but changes up to {end} were delivered"
            with pytest.raises(ConfigError, match=lost):
                feed.move("now")
            with pytest.raises(HistoryLostError, match=lost):
                feed.restart()
            feed.saved = token
            feed.restart()
            with closing(PostgresPlanner(feed.context)) as planner:
                assert planner.repeat(feed.token, {**token, "lsn": end}, after=feed.latest) is None
            assert f"but a step up to {end} had begun, and its rows may have been delivered" in caplog.text
            gone = replace(feed.context, uri="postgresql://nobody@127.0.0.1:1/none")
            with (
                closing(PostgresPlanner(gone)) as planner,
                pytest.raises(RetryableRangefeedError, match=r"while reading the timeline: .* refused"),
            ):
                planner.repeat(feed.token, {**token, "lsn": end}, after=feed.latest)
            feed.catch_up()
            assert len(feed.rows("public.t")) == 9
