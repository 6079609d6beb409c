"""All parts of the source together read the log of a real server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_testing.feeding import caught_up, started
from cdc_testing.postgres import Sql
from cdc_testing.processes import resident_bytes
from cdc_testing.runs import eventually

from cdc_core import RowBatch, StepLimit, Timestamp, Token


def test_an_idle_source_is_resolved_once_a_second_and_writes_no_log(database: str, sql: Sql, usual_pace: None) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:

        def log_written() -> object:
            return sql.execute(
                "SELECT coalesce(sum(w.wal_bytes), 0) FROM pg_stat_activity a, pg_stat_get_backend_wal(a.pid) w "
                "WHERE application_name LIKE %s AND a.application_name NOT LIKE '%%/driver'",
                [f"cdc/%/{feed.context.feed_id}/%"],
            ).fetchone()

        def idle() -> Timestamp:
            begun = feed.now()
            feed.steps_until(lambda: feed.now().wall - begun.wall > 2_500_000_000)
            return begun

        before, steps = log_written(), feed.steps
        begun = idle()
        assert feed.steps - steps <= 5
        assert feed.latest.wall - begun.wall > 1_000_000_000
        silent = 0
        for _ in range(6):  # reading the catalog may prune its pages, which writes some
            now = log_written()
            silent, before = silent + 1 if now == before else 0, now
            if silent == 2:
                return
            idle()
        pytest.fail("the source writes log while nothing happens")


@pytest.mark.parametrize(("beyond", "included"), [(0, False), (1, True)])
def test_a_step_has_the_transactions_whose_commit_record_begins_before_its_end(
    database: str, sql: Sql, usual_pace: None, beyond: int, included: bool
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with started(database, "t", initial_scan=False) as feed:
        # The start may have seen log that is not durable yet, and no step crosses its end. A commit makes it so.
        sql.execute("INSERT INTO t VALUES (0)")
        feed.catch_up()
        sql.execute("INSERT INTO t VALUES (1)")
        sql.execute("INSERT INTO t VALUES (2)")
        name = f"cdc_test_{feed.context.feed_id}"
        begins = sql.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
            "'publication_names', %s) WHERE get_byte(data, 0) = 66",
            [name, name],
        ).fetchall()
        final_lsn = int.from_bytes(begins[1][0][1:9], "big")
        bytes_ = final_lsn + beyond - parse_lsn(feed.token["lsn"])
        feed.limit = StepLimit(rows=feed.limit.rows, bytes=bytes_)
        feed.step()
        assert parse_lsn(feed.token["lsn"]) == final_lsn + beyond
        assert list(feed.rows("public.t")) == ([(0,), (1,), (2,)] if included else [(0,), (1,)])
        feed.catch_up()
        assert [change.key for change in feed.changes] == [(0,), (1,), (2,)]


def test_a_huge_transaction_is_read_in_bounded_memory(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    with started(database, "t", bytes_=1 << 30, initial_scan=False) as feed:
        sql.execute("INSERT INTO t VALUES (0, 'the first step is a short one')")
        feed.catch_up()
        sql.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 200000) g")
        slices = feed.slices()
        before, rows, greatest = resident_bytes(), 0, 0
        latest = Timestamp()
        for item in feed.reader.read(slices[0]):
            if isinstance(item, RowBatch):
                rows += len(item)
                greatest = max(greatest, item.nbytes)
                assert item.latest() >= latest
                latest = item.latest()
        assert rows == 200_000
        assert greatest < 8 << 20
        assert resident_bytes() - before < 120 << 20, "of 200 MB"


def test_marks_go_on_while_the_clock_is_behind_them(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with caught_up(database, "t") as feed:
        ahead = Timestamp(feed.now().wall + 3600 * 10**9)
        token = replace(PostgresToken.from_json(feed.token), clock=ahead).to_json()
        found: list[Token] = []

        def moved() -> bool:
            found[:] = [feed.planner.advance(token, after=ahead, limit=feed.limit)]
            return found[0] != token

        eventually("a mark", moved)
        clock = PostgresToken.from_json(found[0]).clock
        assert clock is not None
        assert ahead < clock < Timestamp(ahead.wall + 10**6)
