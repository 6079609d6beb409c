"""How far apart steps are while an open transaction makes each of them decode log again."""

from __future__ import annotations

import psycopg
import pytest
from cdc_rangefeed_postgres import kept_log
from cdc_rangefeed_postgres.kept_log import KeptLog
from cdc_rangefeed_postgres.pacing import Pacing
from cdc_testing.clock import Clock
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.postgres import Sql

MB = 1 << 20


@pytest.fixture(autouse=True)
def without_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_log, "POSSIBLE", False)


def fill(sql: Sql, megabytes: int) -> None:
    """Write so much log that no feed delivers."""
    sql.execute("CREATE TABLE IF NOT EXISTS filler (v text)")
    sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, %s)", [megabytes * 1000])


def paced(feed: Feed, clock: Clock) -> None:
    feed.planner._kept = KeptLog(feed.planner._server, feed.planner._slot, clock=clock)
    feed.planner._pacing = Pacing(feed.planner._kept, clock=clock)


def test_steps_are_apart_while_a_transaction_is_open_and_not_when_it_has_ended(
    database: str, sql: Sql, clock: Clock
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t", bytes_=32 * MB) as feed, psycopg.connect(database) as writer:
        writer.execute("INSERT INTO t VALUES (0)")
        fill(sql, 100)
        feed.catch_up()
        paced(feed, clock)
        sql.execute("INSERT INTO t VALUES (1)")
        assert feed.step() is not None  # nothing is known of the cost yet
        sql.execute("INSERT INTO t VALUES (2)")
        clock.now += 0.2
        assert feed.plan() is None
        clock.now += 0.8
        assert feed.step() is not None
        assert set(feed.rows("public.t")) == {(1,), (2,)}
        writer.commit()

        def over() -> bool:
            sql.execute("SELECT pg_log_standby_snapshot()")
            clock.now += 1.0
            return feed.history.metrics()["decoded_again_bytes"] < 32 * MB

        feed.steps_until(over)
        for number in (3, 4, 5):
            sql.execute("INSERT INTO t VALUES (%s)", [number])
            assert feed.step() is not None
        assert set(feed.rows("public.t")) == {(0,), (1,), (2,), (3,), (4,), (5,)}


def test_a_feed_that_is_a_full_step_behind_does_not_wait(database: str, sql: Sql, clock: Clock) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t", bytes_=8 * MB) as feed, psycopg.connect(database) as writer:
        writer.execute("INSERT INTO t VALUES (0)")
        fill(sql, 70)
        feed.catch_up()
        paced(feed, clock)
        fill(sql, 20)
        assert feed.step() is not None
        assert feed.step() is not None
        while feed.plan() is not None:  # less than a step is left
            assert feed.step() is not None
        clock.now += 60.0
        assert feed.step() is not None
