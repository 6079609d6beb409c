"""Reading ahead: the slices of large steps have what SQL gives for each of them, whatever becomes of the session."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_rangefeed_postgres import log_ahead, log_slice, log_socket
from cdc_rangefeed_postgres.log_ahead import LogAhead
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.log_slices import by_sql, create_tables, items_of, rows_of
from cdc_testing.postgres import Sql, no_free_slot
from cdc_testing.runs import eventually

from cdc_core import RetryableRangefeedError, Slice

KB, MB = 1 << 10, 1 << 20
COPIES = "SELECT FROM pg_replication_slots WHERE temporary"
SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%/ahead'"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small step is worth it."""
    monkeypatch.setattr(log_ahead, "WORTH_BYTES", 256 * KB)
    monkeypatch.setattr(log_ahead, "_AHEAD_BYTES", 256 * KB)
    monkeypatch.setattr(log_ahead, "_PAUSE_S", 0.0)


@contextmanager
def backlog(database: str, sql: Sql) -> Iterator[Feed]:
    """A feed with a dozen steps to do: small transactions, some that end in another step, and one without rows."""
    create_tables(sql)
    with caught_up(database, "t", "u", options={"fetch_size": 64 * KB}, bytes_=512 * KB) as feed:
        for number in range(12):
            sql.execute(
                "INSERT INTO t SELECT g, %s, repeat('x', 150) FROM generate_series(%s::int, %s) g",
                [number, number * 1500, number * 1500 + 1499],
            )
            sql.execute("INSERT INTO u SELECT g, 'y' FROM generate_series(%s::int, %s) g", [number * 9, number * 9 + 8])
            sql.execute("UPDATE t SET n = -1 WHERE id %% 100 = %s", [number])
        yield feed


def ahead(feed: Feed) -> LogAhead:
    return feed.planner._ahead


def large_slice(feed: Feed) -> Slice:
    """Do steps until one is read ahead, and return its slice."""
    while True:
        (slice_,) = feed.slices()
        if slice_.payload.session:
            return slice_
        feed.step()


def caught_up_with_source(feed: Feed, sql: Sql) -> None:
    feed.catch_up()
    found = {(id_,): (n, v) for id_, n, v in sql.execute("SELECT id, n, v FROM t").fetchall()}
    assert {key: (row["n"], row["v"]) for key, row in feed.rows("public.t").items()} == found
    assert len(feed.rows("public.u")) == 108


def test_all_large_steps_come_from_one_session(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed:
        slice_, given = large_slice(feed), ahead(feed)._socket
        steps = feed.steps
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_slice, "_from_slot", None)
            patch.setattr(log_slice, "_copy", None)
            while slice_.payload.session:
                assert ahead(feed)._socket is given
                feed.step()
                (slice_,) = feed.slices()
        assert feed.steps >= steps + 3
        eventually("the copy to be dropped", lambda: not sql.execute(COPIES).rowcount)


def test_each_slice_has_the_rows_that_sql_gives(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed:
        slice_, compared = large_slice(feed), 0
        while slice_.payload.session:
            assert rows_of(items_of(feed, slice_)) == rows_of(items_of(feed, by_sql(slice_)))
            compared += 1
            feed.step()
            (slice_,) = feed.slices()
        assert compared >= 2
        caught_up_with_source(feed, sql)


FATES = ["read", "by sql", "twice", "in part", "killed", "another end"]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_becomes_of_the_session_no_row_is_lost(database: str, sql: Sql, seed: int) -> None:
    draw = random.Random(seed)
    with backlog(database, sql) as feed:
        for fate in draw.choices(FATES, k=8):
            (slice_,) = feed.slices()
            if fate == "by sql":
                items_of(feed, by_sql(slice_))
            elif fate == "twice":
                assert rows_of(items_of(feed, slice_)) == rows_of(items_of(feed, slice_))
            elif fate == "in part":
                with closing(PostgresReader(feed.context)) as reader, closing(reader.read(slice_)) as items:
                    next(items)
            elif fate == "killed":
                sql.execute(SESSIONS)
            elif fate == "another end":
                feed.limit = replace(feed.limit, bytes=feed.limit.bytes + 64 * KB)
            try:
                feed.step()
            except RetryableRangefeedError:
                assert fate == "killed"
                feed.restart()
        caught_up_with_source(feed, sql)


def test_what_waits_is_bounded(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed:
        slice_ = large_slice(feed)
        given = ahead(feed)._socket
        assert given is not None
        seen = []

        def full() -> bool:
            seen.append(given.session._bytes)
            return seen[-1] >= 256 * KB

        eventually("the session to wait for a reader", full)
        with closing(PostgresReader(feed.context)) as reader:
            for _ in reader.read(slice_):
                full()
        eventually("the next slice to wait for its reader", full)
        assert max(seen) < 256 * KB + 3 * 64 * KB


def test_a_session_that_ends_in_the_middle_of_a_slice_costs_an_attempt_and_no_row(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed:
        feed.limit = replace(feed.limit, bytes=1536 * KB)  # more than fits into the socket
        slice_ = large_slice(feed)
        with closing(PostgresReader(feed.context)) as reader, closing(reader.read(slice_)) as items:
            next(items)
            sql.execute(SESSIONS)
            ahead(feed).close()
            with pytest.raises(RetryableRangefeedError, match="only partly read"):
                list(items)
        feed.restart()
        caught_up_with_source(feed, sql)


def test_nothing_is_read_ahead_for_tasks_on_other_hosts(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed, pytest.MonkeyPatch.context() as patch:

        def elsewhere(*_: Any) -> None:
            raise ConnectionRefusedError

        patch.setattr(log_slice, "slice_from", elsewhere)
        caught_up_with_source(feed, sql)
        assert ahead(feed)._open_at == float("inf")


def test_without_a_free_descriptor_steps_are_read_by_sql(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(log_socket, "socket", SimpleNamespace(AF_UNIX=socket.AF_UNIX, socket=refuse))
    with backlog(database, sql) as feed:
        caught_up_with_source(feed, sql)
        assert ahead(feed)._socket is None
        eventually("the copy to be dropped", lambda: not sql.execute(COPIES).rowcount)


def test_without_a_free_slot_steps_are_read_by_sql(database: str, sql: Sql) -> None:
    with backlog(database, sql) as feed, no_free_slot(sql):
        caught_up_with_source(feed, sql)
