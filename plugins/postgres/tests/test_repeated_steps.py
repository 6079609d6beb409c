"""A step that another attempt plans again has the same slices."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_testing.feeding import caught_up
from cdc_testing.postgres import Sql


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_every_step_along_the_log_can_be_repeated(database: str, sql: Sql, identity: str) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    sql.execute("CREATE TABLE quiet (id int PRIMARY KEY)")
    with caught_up(database, "quiet", "t") as feed:
        for number in range(4):
            sql.execute("INSERT INTO t VALUES (%s, 'new')", [number])
            start, after = feed.token, feed.latest
            planned = feed.plan()
            assert planned is not None
            with closing(PostgresPlanner(feed.context)) as another:
                again = another.repeat(start, planned[0], after=after)
            assert repr(list(again or ())) == repr(list(planned[1]))
            feed.step()


def test_a_step_that_ends_beyond_the_log_is_planned_anew(database: str, sql: Sql) -> None:
    """As on a standby that was promoted before it had all of the log."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:
        sql.execute("INSERT INTO t VALUES (1)")
        start, after, planned = feed.token, feed.latest, feed.plan()
        assert planned is not None
        end = PostgresToken.from_json(planned[0])
        beyond = replace(end, lsn=end.lsn + (1 << 30)).to_json()
        with closing(PostgresPlanner(feed.context)) as another:
            assert another.repeat(start, beyond, after=after) is None
