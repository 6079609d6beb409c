"""The decoding session that is kept behind an open transaction: it gives what SQL gives, and decodes nothing again."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres import log_session, log_slice
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.slot_copy import SlotCopy
from cdc_testing.kept_session import KB, MB, SESSIONS, Kept, behind, lsn_of
from cdc_testing.log_slices import by_sql, items_of, same, with_payload, write
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually
from cdc_testing.versions import MAJORS

from cdc_core import RetryableRangefeedError, RowBatch, Slice

pytestmark = pytest.mark.usefixtures("kept_soon")


@pytest.fixture
def only_the_session(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function from which on no SQL reads the log."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the log is read by SQL")

    def begin() -> None:
        monkeypatch.setattr(log_slice, "_from_slot", refuse)
        monkeypatch.setattr(SlotCopy, "make", refuse)

    return begin


def test_behind_an_open_transaction_no_step_decodes_the_log_again(
    database: str, sql: Sql, only_the_session: Callable[[], None]
) -> None:
    with behind(database, sql) as kept:
        only_the_session()
        for number in range(1, 6):
            kept.insert(number * 100)
            kept.feed.catch_up()
        found = sql.execute(SESSIONS).fetchall()
        assert len(found) == 1
        assert found[0][1] >= lsn_of(kept.feed)
        assert found[0][2] is None, "it must not count as a synchronous standby"
        assert sql.execute("SELECT count(*) FROM t WHERE id >= 100").fetchone() == (50,)
        assert len([key for key in kept.feed.rows("public.t") if key[0] >= 100]) == 50


def test_the_open_transaction_itself_comes_in_its_place_and_then_the_session_ends(database: str, sql: Sql) -> None:
    with behind(database, sql) as kept:
        kept.insert(1)
        kept.writer.execute("UPDATE t SET v = 'changed' WHERE id <= 5")
        kept.writer.commit()
        kept.insert(100)
        kept.feed.catch_up()
        assert kept.feed.rows("public.t")[0,]["v"] == "changed"

        def over() -> bool:
            sql.execute("SELECT pg_log_standby_snapshot()")
            kept.probe()
            return kept.feed.planner._kept._session is None

        eventually("the session to end", over)
        eventually(
            "its copy to be dropped",
            lambda: not sql.execute("SELECT FROM pg_replication_slots WHERE temporary").rowcount,
        )
        assert len(kept.feed.rows("public.t")) == len(sql.execute("SELECT FROM t").fetchall())


def test_a_slice_and_its_repetition_have_the_batches_that_sql_gives(database: str, sql: Sql) -> None:
    with behind(database, sql) as kept:
        write(database, sql)
        slice_ = kept.slice()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_slice, "_from_slot", None)
            first, again = items_of(kept.feed, slice_), items_of(kept.feed, slice_)
        assert same(first, again)
        assert same(first, items_of(kept.feed, by_sql(slice_)))
        assert sum(len(item) for item in first if isinstance(item, RowBatch)) > 8_000


def test_each_slice_begins_with_the_tables_that_were_announced_before(
    database: str, sql: Sql, only_the_session: Callable[[], None]
) -> None:
    with behind(database, sql) as kept:
        for table, id_ in (("t", 1), ("u", 1), ("t", 2)):
            sql.execute(f"INSERT INTO {table} (id) VALUES ({id_})")
            kept.feed.catch_up()
        only_the_session()
        sql.execute("INSERT INTO u (id) VALUES (2)")
        kept.feed.catch_up()
        assert set(kept.feed.rows("public.u")) == {(1,), (2,)}


def test_a_table_that_is_altered_behind_the_open_transaction_arrives_with_both_shapes(database: str, sql: Sql) -> None:
    with behind(database, sql) as kept:
        sql.execute("INSERT INTO u VALUES (1, 'before')")
        sql.execute("ALTER TABLE u ADD COLUMN w int")
        sql.execute("INSERT INTO u VALUES (2, 'after', 7)")
        kept.feed.catch_up()
        kept.keep()
        sql.execute("INSERT INTO u VALUES (3, 'later', 8)")
        kept.feed.catch_up()
        assert {key[0]: row.get("w") for key, row in kept.feed.rows("public.u").items()} == {1: None, 2: 7, 3: 8}


class Failure:
    """What can become of a session before or while its slice is read. By each, the slice is read by SQL."""

    def killed(self, kept: Kept, slice_: Slice) -> Slice:
        kept.sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        eventually("the session to notice", lambda: kept.session.ended is not None)
        kept.session.forget(slice_.payload.end)
        return slice_

    def on_another_host(self, kept: Kept, slice_: Slice) -> Slice:
        return with_payload(slice_, session="cdc-elsewhere")

    def closed(self, kept: Kept, slice_: Slice) -> Slice:
        kept.feed.planner._kept.close()
        return slice_

    def ahead(self, kept: Kept, slice_: Slice) -> Slice:
        kept.session.forget(slice_.payload.end)
        kept.session._base = slice_.payload.end
        return slice_

    def of_another_user(self, kept: Kept, slice_: Slice) -> Slice:
        return slice_


@pytest.mark.parametrize("kind", ["killed", "on_another_host", "closed", "ahead", "of_another_user"])
def test_a_slice_that_the_session_does_not_give_is_read_by_sql(
    database: str, sql: Sql, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind(database, sql) as kept:
        write(database, sql)
        slice_ = getattr(Failure(), kind)(kept, kept.slice())
        if kind == "of_another_user":
            monkeypatch.setattr(os, "geteuid", lambda: -1)
        found = items_of(kept.feed, slice_)
        monkeypatch.undo()
        assert same(found, items_of(kept.feed, by_sql(slice_)))


def test_a_session_that_is_killed_in_the_middle_of_a_slice_costs_an_attempt_and_no_row(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    monkeypatch.setattr(log_session, "_KEPT_BYTES", MB)
    with behind(database, sql) as kept, socket.socket(fileno=os.dup(kept.session._connection.fileno())) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KB)  # much of the slice stays at the server
        kept.insert(1, 9000, "y" * 1000)
        slice_ = kept.slice()
        reader = PostgresReader(kept.feed.context)
        items = reader.read(slice_)
        next(items)
        kept.sql.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_replication")
        with pytest.raises(RetryableRangefeedError, match="only partly read"):
            list(items)
        reader.close()
        assert same(items_of(kept.feed, slice_), items_of(kept.feed, by_sql(slice_)))
        kept.feed.restart()
        kept.feed.catch_up()
        assert len(kept.feed.rows("public.t")) == len(sql.execute("SELECT FROM t").fetchall())


def test_a_large_transaction_passes_through_in_bounded_memory(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    monkeypatch.setattr(log_session, "_KEPT_BYTES", MB)
    with behind(database, sql) as kept:
        kept.insert(1, 9000, "y" * 1000)
        slice_, rows, most = kept.slice(), 0, 0
        reader = PostgresReader(kept.feed.context)
        for item in reader.read(slice_):
            rows += len(item) if isinstance(item, RowBatch) else 0
            most = max(most, sum(piece.size for piece in list(kept.session._pieces)))
        reader.close()
        assert rows >= 9000
        assert 0 < most < 3 * MB


@pytest.mark.slow
@pytest.mark.parametrize("major", MAJORS)
def test_each_version_has_the_session(
    major: int, postgres_version: Callable[[int], EmbeddedPostgres], only_the_session: Callable[[], None]
) -> None:
    uri = postgres_version(major).uri()
    with psycopg.connect(uri, autocommit=True) as sql:
        with behind(uri, sql) as kept:
            write(uri, sql)
            slice_ = kept.slice()
            assert same(items_of(kept.feed, slice_), items_of(kept.feed, by_sql(slice_)))
            kept.feed.catch_up()
            only_the_session()
            kept.probe()
            assert sql.execute(SESSIONS).fetchall()[0][2] is None
        sql.execute("DROP TABLE t, u, filler")
