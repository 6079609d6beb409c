"""The decoding session that is kept behind an open transaction: it gives what SQL gives, and decodes nothing again."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres import kept_log, log_session, log_slice
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.log_session import LogSession
from cdc_rangefeed_postgres.log_socket import slice_from
from cdc_rangefeed_postgres.long_transactions import LongTransactions
from cdc_rangefeed_postgres.lsn import flushed_and_clock, parse_lsn
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.slot_copy import SlotCopy
from cdc_testing.clock import Clock
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import Feed, caught_up
from cdc_testing.postgres import Sql, no_free_slot
from cdc_testing.runs import eventually
from cdc_testing.versions import MAJORS

from cdc_core import RetryableRangefeedError, RowBatch, Slice, SpanMark

KB, MB = 1 << 10, 1 << 20
SESSIONS = "SELECT pid, sent_lsn - '0/0', flush_lsn FROM pg_stat_replication WHERE application_name LIKE '%/session'"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is kept behind little log, and one that ended is followed by another."""
    monkeypatch.setattr(kept_log, "MIN_AGAIN_BYTES", 256 * KB)
    monkeypatch.setattr(kept_log, "_POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(kept_log, "_PAUSE_S", 0.0)
    monkeypatch.setattr(kept_log, "_CALM_BYTES", 256 * MB)


@pytest.fixture
def only_the_session(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function from which on no SQL reads the log."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the log is read by SQL")

    def begin() -> None:
        monkeypatch.setattr(log_slice, "_from_slot", refuse)
        monkeypatch.setattr(SlotCopy, "make", refuse)

    return begin


@dataclass
class Kept:
    """A feed behind an open transaction of `writer`, which has a session."""

    feed: Feed
    writer: psycopg.Connection[Any]
    sql: Sql
    probes: int = 0

    @property
    def session(self) -> LogSession:
        assert self.feed.planner._kept._session is not None
        return self.feed.planner._kept._session

    def insert(self, first: int, count: int = 10, text: str = "x") -> None:
        self.sql.execute(
            "INSERT INTO t SELECT g, 0, %s FROM generate_series(%s::int, %s) g", [text, first, first + count - 1]
        )

    def slice(self) -> Slice:
        (slice_,) = self.feed.slices()
        assert slice_.payload.session
        return slice_

    def probe(self) -> None:
        """Deliver one more row."""
        self.probes -= 1
        self.insert(self.probes, 1)
        self.feed.catch_up()

    def keep(self) -> None:
        """Return when the session has come to the end of the log."""

        def stands() -> bool:
            self.probe()
            return self.feed.planner._kept.serves(_lsn(self.feed), _lsn(self.feed) + 1)

        eventually("the session to come to the end of the log", stands)


def _lsn(feed: Feed) -> int:
    return parse_lsn(feed.token["lsn"])


def hold(writer: psycopg.Connection[Any], sql: Sql) -> None:
    """Open a transaction, and write log behind it."""
    writer.execute("INSERT INTO t VALUES (0, 0, 'open')")
    sql.execute("CREATE TABLE IF NOT EXISTS filler (v text)")
    sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 3000)")


@contextmanager
def behind(database: str, sql: Sql, **options: Any) -> Iterator[Kept]:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text)")
    sql.execute("CREATE TABLE u (id int PRIMARY KEY, v text)")
    options = {"fetch_size": 64 * KB} | options
    with (
        caught_up(database, "t", "u", options=options, bytes_=256 * MB) as feed,
        closing(psycopg.connect(database)) as writer,
    ):
        hold(writer, sql)
        kept = Kept(feed, writer, sql)
        kept.keep()
        yield kept


def items_of(feed: Feed, slice_: Slice) -> list[RowBatch | SpanMark]:
    reader = PostgresReader(feed.context)
    try:
        return list(reader.read(slice_))
    finally:
        reader.close()


def by_sql(slice_: Slice) -> Slice:
    return replace(slice_, payload=replace(slice_.payload, session=""))


def same(one: list[RowBatch | SpanMark], other: list[RowBatch | SpanMark]) -> bool:
    """Whether both have the same batches, rows, timestamps and marks."""
    return len(one) == len(other) and all(first == second for first, second in zip(one, other, strict=True))


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
        assert found[0][1] >= _lsn(kept.feed)
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


def write(database: str, sql: Sql) -> None:
    """Small transactions on two tables, and a large one that others commit in the middle of."""
    for number in range(30):
        sql.execute("INSERT INTO u SELECT g + %s, repeat('y', 50) FROM generate_series(1, 30) g", [number * 100])
    sql.execute("INSERT INTO t SELECT g, 0, repeat('x', 300) FROM generate_series(1000, 3000) g")
    with psycopg.connect(database) as large:
        for number in range(10):
            large.execute(
                "INSERT INTO t SELECT g + %s, %s, 'z' FROM generate_series(1, 500) g", [10_000 + 500 * number, number]
            )
            sql.execute("UPDATE u SET v = 'later' WHERE id = %s", [number + 1])
    sql.execute("DELETE FROM u WHERE id % 2 = 0")


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
        return replace(slice_, payload=replace(slice_.payload, session="cdc-elsewhere"))

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
    monkeypatch.setattr(log_session, "_FULL_LIMIT_S", 1.0)
    with behind(database, sql) as kept:
        kept.insert(1, 9000, "y" * 1000)
        slice_ = kept.slice()
        reader = PostgresReader(kept.feed.context)
        items = reader.read(slice_)
        next(items)
        kept.sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        eventually("the session to notice", lambda: kept.session.ended is not None)
        with pytest.raises(RetryableRangefeedError, match="read only in part"):
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


def test_a_session_lets_pass_what_was_read_by_sql(database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    with behind(database, sql) as kept:
        later = flushed_and_clock(sql)[0] + (1 << 30)
        kept.session.forget(later)
        kept.insert(1, 9000, "y" * 1000)
        end = flushed_and_clock(sql)[0]
        eventually("the session to come to the end of the log", lambda: kept.session.has(later, nearly_to=end))


def test_a_session_that_nobody_reads_ends_so_that_the_server_can_shut_down(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    monkeypatch.setattr(log_session, "_FULL_LIMIT_S", 0.2)
    with behind(database, sql) as kept:
        kept.insert(1, 9000, "y" * 1000)
        eventually("the session to end", lambda: kept.session.ended is not None)
        assert kept.session.ended == "nothing has read what it holds"
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
            "each step decodes the log behind the open transaction again, because the server gives no kept connection:"
            " all replication slots are in use"
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
        empty = replace(slice_, payload=replace(slice_.payload, end=slice_.payload.start, session=""))
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
        process.wait(30.0)
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


class Drawn:
    """What a drawn history does to the tables, the session and the feed. Each kind is a method."""

    def __init__(self, kept: Kept, database: str, draw: random.Random) -> None:
        self.kept, self.database, self.draw = kept, database, draw
        self.added = 0

    def change(self) -> None:
        first = self.draw.randrange(1, 300)
        with psycopg.connect(self.database) as connection:
            for table in self.draw.sample(["t", "u"], self.draw.randint(1, 2)):
                rows = f"INSERT INTO {table} (id, v) SELECT g, %s FROM generate_series(%s::int, %s) g"
                update = "ON CONFLICT (id) DO UPDATE SET v = excluded.v"
                connection.execute(f"{rows} {update}", [str(self.draw.random()), first, first + 20])

    def delete(self) -> None:
        self.kept.sql.execute("DELETE FROM u WHERE id %% 3 = %s", [self.draw.randrange(3)])

    def move_keys(self) -> None:
        self.kept.sql.execute("UPDATE u SET id = id + 1000 WHERE id = %s", [self.draw.randrange(1, 300)])

    def write_much(self) -> None:
        text = "z" * self.draw.choice([10, 3000])
        values = "ON CONFLICT (id) DO UPDATE SET v = excluded.v"
        rows = "INSERT INTO t SELECT g, 0, %s FROM generate_series(2000, 3000) g"
        self.kept.sql.execute(f"{rows} {values}", [text])

    def alter(self) -> None:
        self.added += 1
        self.kept.sql.execute(f"ALTER TABLE u ADD COLUMN c{self.added} int")

    def analyze(self) -> None:
        self.kept.sql.execute("ANALYZE t, u")

    def end_the_transaction(self) -> None:
        (self.kept.writer.commit if self.draw.random() < 0.5 else self.kept.writer.rollback)()
        self.kept.writer.execute("INSERT INTO t (id) VALUES (0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1")
        self.kept.sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 500)")

    def kill_the_session(self) -> None:
        self.kept.sql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name LIKE '%/session'"
        )

    def close_the_session(self) -> None:
        self.kept.feed.planner._kept.close()

    def kill_the_attempt(self) -> None:
        self.kept.feed.restart()

    def kill_in_the_middle_of_a_slice(self) -> None:
        planned = self.kept.feed.plan()
        if planned is not None:
            items = self.kept.feed.reader.read(planned[1][0])
            next(items)
            items.close()  # type: ignore[attr-defined]
            self.kept.feed.restart()

    def read_by_both(self) -> None:
        planned = self.kept.feed.plan()
        if planned is not None and isinstance(planned[1][0].payload, log_slice.LogSlice):
            (slice_,) = planned[1]
            assert same(items_of(self.kept.feed, slice_), items_of(self.kept.feed, by_sql(slice_)))
            assert same(items_of(self.kept.feed, slice_), items_of(self.kept.feed, by_sql(slice_)))

    def step(self) -> None:
        try:
            self.kept.feed.step()
        except RetryableRangefeedError:
            self.kept.feed.restart()

    def change_and_step(self) -> None:
        for _ in range(3):
            self.change()
            self.step()


_OFTEN = ("change", "step", "change_and_step")


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_no_drawn_history_with_faults_loses_or_changes_a_row(
    database: str, sql: Sql, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_session, "_AHEAD_BYTES", MB)
    monkeypatch.setattr(log_session, "_KEPT_BYTES", MB)
    draw, given = random.Random(seed), 0

    def counted(name: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        nonlocal given
        given += 1
        return slice_from(name, start, end)

    monkeypatch.setattr(log_slice, "slice_from", counted)
    kinds = [name for name in vars(Drawn) if not name.startswith("_")]
    with behind(database, sql) as kept:
        drawn = Drawn(kept, database, draw)
        for _ in range(40):
            kind = draw.choice(kinds) if draw.random() < 0.5 else draw.choice(_OFTEN)
            getattr(drawn, kind)()
        kept.writer.commit()
        kept.feed.catch_up()
        assert given, "the session gave no slice"
        for table in ("t", "u"):
            columns = sql.execute(f"SELECT * FROM {table} WHERE id >= 0")
            expected = {row[0]: row for row in columns}
            assert {key[0] for key in kept.feed.rows(f"public.{table}") if key[0] >= 0} == set(expected)
            for key, row in kept.feed.rows(f"public.{table}").items():
                assert key[0] < 0 or row["v"] == expected[key[0]][-1 if table == "t" else 1]
