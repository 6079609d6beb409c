"""Large slices of the log: read from a copy of the slot, with the same result as from the slot itself."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres import log_slice, slot_copy
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.slot_copy import SlotCopy
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.log_slices import Items, create_tables, items_of, rows_of, same, with_payload, write
from cdc_testing.postgres import Sql, no_free_slot
from cdc_testing.runs import eventually

from cdc_core import (
    ConfigError,
    HistoryLostError,
    RetryableRangefeedError,
    RowBatch,
    Slice,
    TerminalRangefeedError,
)

ThreadsAhead = Callable[[], set[threading.Thread]]
KB, MB = 1 << 10, 1 << 20
COPIES = "SELECT slot_name::text FROM pg_replication_slots WHERE slot_name LIKE '%\\_copy\\_%'"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slice is read from a copy, in many intervals, and little of it waits."""
    monkeypatch.setattr(log_slice, "WORTH_BYTES", 1)
    monkeypatch.setattr(log_slice, "_AHEAD_BYTES", 64 * KB)
    monkeypatch.setattr(slot_copy, "_FIRST_BYTES", 32 * KB)
    monkeypatch.setattr(slot_copy, "_LARGEST_BYTES", 256 * KB)
    monkeypatch.setattr(log_slice, "_told", set())


@pytest.fixture
def table(sql: Sql) -> None:
    create_tables(sql)


@contextmanager
def behind(database: str, *tables: str, **options: Any) -> Iterator[Feed]:
    """A feed along the log, which has read everything so far. Its first step was a small one."""
    options = {"fetch_size": 64 * KB} | options
    with caught_up(database, *tables, options=options, bytes_=256 * MB) as feed:
        with psycopg.connect(database) as first:
            first.execute(f"INSERT INTO {tables[0]} (id) VALUES (-9)")
        feed.catch_up()
        yield feed


def slice_of(feed: Feed) -> Slice:
    (slice_,) = feed.slices()
    return slice_


@contextmanager
def to_read(database: str, sql: Sql) -> Iterator[tuple[Feed, Slice]]:
    """A feed of both tables, and the slice that has what `write` writes."""
    with behind(database, "t", "u") as feed:
        write(database, sql)
        yield feed, slice_of(feed)


def copies(sql: Sql) -> list[str]:
    return [row[0] for row in sql.execute(COPIES)]


def from_the_slot(feed: Feed, slice_: Slice) -> Items:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_slice, "WORTH_BYTES", 1 << 62)
        return items_of(feed, slice_)


@pytest.mark.usefixtures("small", "table")
def test_rows_timestamps_and_marks_are_those_of_the_slot_itself(database: str, sql: Sql) -> None:
    with to_read(database, sql) as (feed, slice_):
        expected, got = from_the_slot(feed, slice_), items_of(feed, slice_)
        assert rows_of(got) == rows_of(expected)
        assert len(rows_of(got)) > 15_000
        assert copies(sql) == []


@pytest.mark.usefixtures("small", "table")
def test_a_repeated_slice_has_the_same_batches_also_when_the_slot_is_still_behind_it(database: str, sql: Sql) -> None:
    with to_read(database, sql) as (feed, slice_):
        later = with_payload(slice_, start=(slice_.payload.start + slice_.payload.end) // 2)
        middle = later.payload
        first, again = items_of(feed, later), items_of(feed, later)
        assert same(first, again)
        assert rows_of(first) == rows_of(from_the_slot(feed, later))
        sql.execute("SELECT pg_replication_slot_advance(%s, %s)", [middle.slot.name, lsn_text(middle.start)])
        released = items_of(feed, later)
        assert rows_of(released) == rows_of(first)
        assert list(map(type, released)) == list(map(type, first))


@pytest.mark.usefixtures("small", "table")
def test_a_type_without_a_binary_form_is_read_from_a_copy_too(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE texts (id int PRIMARY KEY, v tsvector)")
    with behind(database, "texts") as feed:
        for number in range(20):
            sql.execute("INSERT INTO texts SELECT %s + g, 'fat cat' FROM generate_series(1, 900) g", [number * 1000])
        slice_ = slice_of(feed)
        assert rows_of(items_of(feed, slice_)) == rows_of(from_the_slot(feed, slice_))


@pytest.mark.usefixtures("table")
def test_a_slice_of_usual_size_is_read_from_a_copy(database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_slice, "_AHEAD_BYTES", MB)
    with behind(database, "t", fetch_size=MB) as feed:
        for number in range(30):
            sql.execute(
                "INSERT INTO t SELECT %s + g, 0, repeat('x', 1500) FROM generate_series(1, 900) g", [number * 1000]
            )
        slice_ = slice_of(feed)
        items = feed.reader.read(slice_)
        next(items)
        (name,) = copies(sql)
        assert name.startswith(f"{slice_.payload.slot.name}_copy_")
        assert len(name) <= 63
        assert sum(len(item) for item in items if isinstance(item, RowBatch)) > 26_000
        assert copies(sql) == []


@pytest.mark.usefixtures("small", "table")
def test_a_reader_that_stops_early_leaves_neither_a_copy_nor_a_thread(
    database: str, sql: Sql, threads_ahead: ThreadsAhead
) -> None:
    with to_read(database, sql) as (feed, slice_):
        items = feed.reader.read(slice_)
        next(items)
        assert copies(sql)
        items.close()  # type: ignore[attr-defined]
        assert threads_ahead() == set()
        eventually("the copy to be dropped", lambda: not copies(sql))
        assert rows_of(list(feed.reader.read(slice_))) == rows_of(from_the_slot(feed, slice_))


@pytest.mark.usefixtures("small", "table")
def test_a_lost_connection_is_an_outage_and_another_attempt_reads_on(database: str, sql: Sql) -> None:
    with to_read(database, sql) as (feed, slice_):
        items = feed.reader.read(slice_)
        next(items)
        sql.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE temporary")
        with pytest.raises(RetryableRangefeedError, match="PostgreSQL failed while reading the log"):
            list(items)
        assert rows_of(list(feed.reader.read(slice_))) == rows_of(from_the_slot(feed, slice_))


_READ = """
import pickle, sys
from cdc_rangefeed_postgres import log_slice
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.slot_copy import SlotCopy
context, slice_ = pickle.load(sys.stdin.buffer)
log_slice.WORTH_BYTES, log_slice._AHEAD_BYTES = 1, 1
items = PostgresReader(context).read(slice_)
next(items)
print("reading", flush=True)
sys.stdin.buffer.read()
"""


@pytest.mark.usefixtures("table")
def test_the_copy_of_a_killed_reader_is_dropped_and_does_not_disturb_the_next_one(database: str, sql: Sql) -> None:
    with to_read(database, sql) as (feed, slice_):
        with subprocess.Popen([sys.executable, "-c", _READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(pickle.dumps((feed.context, slice_)))
            reader.stdin.flush()
            assert reader.stdout.readline() == b"reading\n"
            assert copies(sql)
            os.kill(reader.pid, signal.SIGKILL)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(log_slice, "WORTH_BYTES", 1)
                assert rows_of(items_of(feed, slice_)) == rows_of(from_the_slot(feed, slice_))
        eventually("the copy to be dropped", lambda: not copies(sql))


@pytest.mark.usefixtures("small", "table")
def test_without_a_free_slot_the_slot_itself_is_read_and_the_log_says_so_once(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    with to_read(database, sql) as (feed, slice_):
        expected = rows_of(items_of(feed, slice_))
        with no_free_slot(sql), caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert rows_of(items_of(feed, slice_)) == expected
        assert caplog.messages == [
            f"replication slot {slice_.payload.slot.name}: reading the log more slowly, because the server"
            " cannot copy the slot: all replication slots are in use"
        ]


@pytest.mark.usefixtures("small", "table")
def test_a_role_that_may_not_copy_slots_reads_the_slot_itself(
    postgres_server: EmbeddedPostgres, database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    function = "FUNCTION pg_copy_logical_replication_slot(name, name, boolean)"
    sql.execute("CREATE ROLE copy_reader LOGIN REPLICATION PASSWORD 'secret'")
    sql.execute("GRANT SELECT ON t TO copy_reader")
    sql.execute(f"REVOKE EXECUTE ON {function} FROM PUBLIC")
    try:
        with behind(database, "t") as feed:
            sql.execute("INSERT INTO t SELECT g, 0, 'x' FROM generate_series(1, 2000) g")
            slice_ = slice_of(feed)
            uri = postgres_server.uri(sql.info.dbname, user="copy_reader", password="secret")
            reader = PostgresReader(replace(feed.context, uri=uri))
            assert rows_of(list(reader.read(slice_))) == rows_of(from_the_slot(feed, slice_))
            reader.close()
            assert "permission denied for function pg_copy_logical_replication_slot" in caplog.text
    finally:
        sql.execute(f"GRANT EXECUTE ON {function} TO PUBLIC")
        sql.execute("REVOKE ALL ON t FROM copy_reader")
        sql.execute("DROP ROLE copy_reader")


@pytest.mark.usefixtures("small", "table")
def test_a_password_that_was_rotated_and_a_right_that_was_revoked_may_be_repaired(
    postgres_server: EmbeddedPostgres, database: str, sql: Sql
) -> None:
    sql.execute("CREATE ROLE copy_reader LOGIN REPLICATION PASSWORD 'secret'")
    try:
        with behind(database, "t") as feed:
            sql.execute("INSERT INTO t SELECT g, 0, 'x' FROM generate_series(1, 10) g")
            slice_ = slice_of(feed)
            uri = postgres_server.uri(sql.info.dbname, user="copy_reader", password="secret")

            def refusal() -> TerminalRangefeedError:
                with closing(PostgresReader(replace(feed.context, uri=uri))) as reader:
                    with pytest.raises(TerminalRangefeedError) as refused:
                        list(reader.read(slice_))
                    return refused.value

            for change, said in (
                ("ALTER ROLE copy_reader NOREPLICATION", "permission denied to use replication slots"),
                ("ALTER ROLE copy_reader PASSWORD 'another'", "password authentication failed"),
            ):
                sql.execute(change)
                error = refusal()
                assert said in str(error)
                assert error.repairable
            with pytest.raises(ConfigError, match="password authentication failed") as refused:
                PostgresRangefeed(replace(feed.context, uri=uri)).check()
            assert refused.value.repairable
    finally:
        sql.execute("DROP ROLE copy_reader")


@pytest.mark.usefixtures("small", "table")
def test_a_slot_that_was_moved_or_dropped_is_lost_history(database: str, sql: Sql) -> None:
    with to_read(database, sql) as (feed, slice_):
        name, end = slice_.payload.slot.name, lsn_text(slice_.payload.end)
        sql.execute("SELECT pg_replication_slot_advance(%s, %s)", [name, end])
        expected = f"replication slot {name} was moved to {end} by another program"
        with pytest.raises(HistoryLostError, match=expected) as lost:
            list(feed.reader.read(slice_))
        assert not lost.value.repairable
        sql.execute("SELECT pg_drop_replication_slot(%s)", [name])
        with pytest.raises(HistoryLostError, match=f"replication slot {name} no longer exists"):
            list(feed.reader.read(slice_))


@pytest.mark.usefixtures("small", "table")
def test_behind_an_open_transaction_intervals_grow_with_what_is_decoded_again(database: str, sql: Sql) -> None:
    with behind(database, "t", "u") as feed, psycopg.connect(database) as writer:
        writer.execute("INSERT INTO t VALUES (-1, 0, 'open')")
        write(database, sql)
        slice_ = slice_of(feed)
        payload = replace(slice_.payload, start=slice_.payload.end - 256 * KB)
        connection = Server(feed.context).connect_arrow("log")
        copy = slot_copy.SlotCopy.make(connection, payload.slot, start=payload.start)
        ends = set()
        for _ in copy.fetches(payload.end, binary=True, batch_bytes=8 * KB):
            ends |= set(sql.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE temporary"))
        connection.close()
        assert len(ends) == 1


_WAIT = """
import pickle, sys, threading
from cdc_core import RowBatch
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.slot_copy import SlotCopy
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) << 10
context, slice_ = pickle.load(sys.stdin.buffer)
reader = PostgresReader(context)
reader.check()
before, pause = resident(), threading.Event()
items = reader.read(slice_)
rows, seen = len(next(items)), [resident()]
while len(seen) < 20 or seen[-1] > seen[-20]:
    pause.wait(0.05)
    seen.append(resident())
rows += sum(len(item) for item in items if isinstance(item, RowBatch))
print(seen[-1] - before, rows)
"""


@pytest.mark.usefixtures("table")
def test_large_values_wait_in_bounded_memory(database: str, sql: Sql) -> None:
    """40 values of 4 MB, and a consumer that takes one until its process grows no more."""
    sql.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    with behind(database, "t") as feed:
        for number in range(40):
            sql.execute("INSERT INTO t VALUES (%s, 0, repeat('x', 4000000))", [number])
        given = pickle.dumps((feed.context, slice_of(feed)))
        read = subprocess.run([sys.executable, "-c", _WAIT], input=given, capture_output=True, check=True)
        grown, rows = map(int, read.stdout.split())
        assert grown < log_slice._AHEAD_BYTES + 48 * MB
        assert rows == 40


@pytest.mark.usefixtures("small", "table")
def test_an_error_of_the_consumer_ends_the_thread_before_the_connection(
    database: str, sql: Sql, threads_ahead: ThreadsAhead
) -> None:
    with behind(database, "t", "u") as feed:
        sql.execute("TRUNCATE u")
        write(database, sql)
        with pytest.raises(TerminalRangefeedError, match="truncated") as raised:
            list(feed.reader.read(slice_of(feed)))
        assert raised.traceback  # it keeps the frames of the reader alive
        assert threads_ahead() == set()


@pytest.mark.usefixtures("small")
def test_an_early_end_with_a_generated_column_ends_the_thread_too(
    database: str, sql: Sql, threads_ahead: ThreadsAhead
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text, g int GENERATED ALWAYS AS (id * 2) STORED)")
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, v text)")
    with behind(database, "t", "u") as feed:
        write(database, sql)
        items = feed.reader.read(slice_of(feed))
        next(items)
        items.close()
        assert threads_ahead() == set()


@pytest.mark.usefixtures("small", "table")
def test_a_failover_slot_is_read_itself_so_that_rows_wait_for_the_standbys(database: str, sql: Sql) -> None:
    with behind(database, "t", failover=True) as feed:
        write(database, sql)
        with closing(feed.reader._server.connect_arrow("log")) as connection:
            assert SlotCopy.make(connection, feed.planner._slot, start=0) is None
        feed.catch_up()
        assert len(feed.rows("public.t")) == sql.execute("SELECT count(*) FROM t").fetchone()[0]


@pytest.mark.usefixtures("small", "table")
def test_a_log_that_ends_before_the_step_does_is_no_reason_to_wait_for_ever(database: str, sql: Sql) -> None:
    with behind(database, "t") as feed, closing(feed.reader._server.connect_arrow("log")) as connection:
        copy = SlotCopy.make(connection, feed.planner._slot, start=0)
        assert copy is not None
        with pytest.raises(RetryableRangefeedError, match="the server's log ends before"):
            list(copy.fetches(1 << 60, binary=True, batch_bytes=64 * KB))
