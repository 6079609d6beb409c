"""When a decoding session is kept behind an open transaction, when it ends, and what users see of it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres import log_session, log_slice
from cdc_rangefeed_postgres.long_transactions import LongTransactions
from cdc_rangefeed_postgres.lsn import flushed_and_clock
from cdc_testing.clock import Clock
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import caught_up
from cdc_testing.kept_session import MB, SESSIONS, behind, hold
from cdc_testing.log_slices import with_payload
from cdc_testing.postgres import Sql, no_free_slot
from cdc_testing.runs import eventually

from cdc_core import RetryableRangefeedError

pytestmark = pytest.mark.usefixtures("kept_soon")


def test_a_session_lets_pass_what_was_read_by_sql(database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    with behind(database, sql) as kept:
        later = flushed_and_clock(sql)[0] + (1 << 30)
        kept.session.forget(later)
        kept.insert(1, 9000, "y" * 1000)
        end = flushed_and_clock(sql)[0]
        eventually("the session to reach the end of the log", lambda: kept.session.has(later, nearly_to=end))


def test_a_session_that_nobody_reads_ends_so_that_the_server_can_shut_down(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    monkeypatch.setattr(log_session, "_FULL_LIMIT_S", 0.2)
    with behind(database, sql) as kept:
        kept.insert(1, 9000, "y" * 1000)
        eventually("the session to end", lambda: kept.session.ended is not None)
        assert kept.session.ended == "no slice has read its contents"
        kept.feed.catch_up()
        assert len(kept.feed.rows("public.t")) >= 9000


def test_without_a_free_slot_steps_are_read_by_sql_and_the_log_says_so_once(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text)")
    with caught_up(database, "t", bytes_=256 * MB) as feed, psycopg.connect(database) as writer:
        with no_free_slot(sql), caplog.at_level(logging.WARNING):
            hold(writer, sql)
            for number in range(1, 6):
                sql.execute("INSERT INTO t (id) VALUES (%s)", [number])
                feed.catch_up()
        assert [text.partition(": ")[2] for text in caplog.messages] == [
            "each step decodes the log again from the start of the open transaction, because no connection to the"
            " server can be kept open: all replication slots are in use"
        ]
        assert set(feed.rows("public.t")) == {(1,), (2,), (3,), (4,), (5,)}


def test_a_failover_slot_has_no_session_so_that_rows_still_wait_for_the_standbys(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text)")
    with (
        caught_up(database, "t", options={"failover": True}, bytes_=256 * MB) as feed,
        psycopg.connect(database) as writer,
    ):
        hold(writer, sql)
        for number in range(1, 6):
            sql.execute("INSERT INTO t (id) VALUES (%s)", [number])
            feed.catch_up()
        assert feed.planner._kept._session is None


def test_the_session_ends_when_all_tasks_run_on_other_hosts(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(database, sql) as kept, caplog.at_level(logging.INFO):

        def refuse(*_: Any) -> Iterator[pa.RecordBatch]:
            raise ConnectionRefusedError

        monkeypatch.setattr(log_slice, "slice_from", refuse)
        for _ in range(5):
            kept.probe()
        assert kept.feed.planner._kept._session is None
        assert "closed the kept connection: no task has read from it: they run on other hosts" in caplog.text
        assert len(kept.feed.rows("public.t")) == len(sql.execute("SELECT FROM t WHERE id <> 0").fetchall())


def test_steps_without_log_do_not_count_as_unread(database: str, sql: Sql) -> None:
    with behind(database, sql) as kept:
        kept.insert(1)
        slice_, log_ = kept.slice(), kept.feed.planner._kept
        empty = with_payload(slice_, end=slice_.payload.start, session="")
        for _ in range(5):
            assert log_.named(empty) is empty
        session = kept.session
        kept.probe()
        assert log_._session is session


def test_a_session_whose_copy_holds_back_the_log_ends(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(database, sql) as kept, closing(psycopg.connect(database)) as later, caplog.at_level(logging.INFO):
        sql.execute("SELECT pg_log_standby_snapshot()")
        later.execute("INSERT INTO t VALUES (-100000, 0, 'open')")
        sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 500)")
        kept.writer.commit()

        def ended() -> bool:
            sql.execute("SELECT pg_log_standby_snapshot()")
            kept.probe()
            return "the transactions that were open when it began have ended" in caplog.text

        eventually("the session to end", ended)


def test_a_session_that_has_nothing_to_give_for_long_ends(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(database, sql) as kept, caplog.at_level(logging.INFO):
        kept.feed.planner._kept._unserved_since = -1000.0
        kept.probe()
        assert "closed the kept connection: it does not keep up" in caplog.text


def test_a_server_shuts_down_while_a_session_is_kept_and_nothing_is_lost() -> None:
    with (
        CopiedPostgres(settings={"fsync": "off"}) as server,
        closing(psycopg.connect(server.uri(), autocommit=True)) as sql,
        behind(server.uri(), sql) as kept,
    ):
        kept.insert(1)
        process = server._process
        assert process is not None
        process.send_signal(signal.SIGINT)
        process.wait(100.0)
        with pytest.raises(RetryableRangefeedError):
            kept.feed.step()
        server.start()
        kept.feed.restart()
        kept.feed.catch_up()
        assert {(number,) for number in range(1, 11)} <= set(kept.feed.rows("public.t"))


def test_another_attempt_ends_the_session_of_the_one_before(database: str, sql: Sql) -> None:
    with behind(database, sql) as kept:
        session = kept.session
        kept.feed.planner._slot.end_old_connections(sql)
        eventually("the session to end", lambda: session.ended is not None)
        assert not sql.execute(SESSIONS).rowcount


def test_the_notice_says_that_only_a_start_decodes_the_log_again(database: str, sql: Sql, clock: Clock) -> None:
    with behind(database, sql) as kept:
        kept.feed.history._long_transactions = LongTransactions(clock=clock)
        sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 70000)")
        for _ in range(3):
            kept.feed.catch_up()
            kept.keep()
            kept.feed.history.metrics()
            clock.now += 20.0
        assert str(kept.feed.history.notice()).startswith("each start decodes more than 64 MB of the log again, from")


def test_log_is_released_rarely_while_that_decodes_more_than_it_lets_go(database: str, sql: Sql, clock: Clock) -> None:
    with behind(database, sql) as kept:
        history, slot = kept.feed.history, kept.feed.planner._slot
        history._clock = clock

        def released() -> int:
            state = slot.state(sql)
            assert state is not None
            return state.confirmed

        def step(number: int) -> None:
            kept.insert(number)
            kept.feed.catch_up()

        step(1)
        before = released()
        history._spare_until = clock() + 1.0
        step(100)
        assert released() == before
        clock.now += 2.0
        step(200)
        assert released() > before
