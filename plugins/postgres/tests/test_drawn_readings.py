"""Drawn histories, with faults, of what reads the log for tasks: no row is lost, changed or out of order.

The planner, which has the decoding sessions, is a process of its own. What a slice has is compared with what SQL gives.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres import log_slice, log_socket
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.log_slice import LogSlice
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_testing.feeding import Feed, PostgresParts, caught_up
from cdc_testing.fixtures import fresh_database
from cdc_testing.kept_session import KB, MB, SOON
from cdc_testing.log_slices import by_sql, create_tables, items_of, same
from cdc_testing.planner_process import BUGS, PlannerProcess, Settings
from cdc_testing.postgres import Sql, table_of

from cdc_core import RetryableRangefeedError, Slice

READERS = ("kept", "ahead")
_LITTLE = {
    "planner._IDLE_NS": 10_000_000,
    "log_session._AHEAD_BYTES": MB,
    "log_session._KEPT_BYTES": MB,
    "log_ahead.WORTH_BYTES": 256 * KB,
    "log_ahead._AHEAD_BYTES": 256 * KB,
    "log_ahead._PAUSE_S": 0.0,
}
SETTINGS: dict[str, Settings] = {
    "kept": _LITTLE | {f"kept_log.{name}": value for name, value in SOON.items()},
    "ahead": _LITTLE,
}
"""By reader. With them it is used for little log."""
_STEP_BYTES = {"kept": 256 * MB, "ahead": 512 * KB}
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '/(session|ahead)$'"
_MOVE_KEY = """
UPDATE u SET id = id + 1000 WHERE id = %s AND NOT EXISTS (SELECT FROM u AS other WHERE other.id = u.id + 1000)
"""
_NO_EVENTS = ("hold", "end", "names_a_session")
_RARE = 0.25
"""How many of the events are drawn from all; a session begins after a few steps without a fault."""
_OFTEN = ("change", "steps", "steps", "write_much", "compare")
_WIDTH = 1500
"""Wider values would be compressed in the log."""
_MOST_ATTEMPTS = 20
_MOST_SEEDS = 6
_DIFFERS = "a slice differs from what SQL gives"


class History:
    """What happens to the tables, the sessions and the feed. Each public method is an event."""

    def __init__(self, feed: Feed, writer: psycopg.Connection[Any], sql: Sql, draw: random.Random) -> None:
        self._feed, self._writer, self._sql, self._draw = feed, writer, sql, draw
        self._columns = self._values = 0
        self._written: set[tuple[str, int, str]] = set()
        """Table, key and value of each row that was inserted or updated."""

    # the tables

    def change(self) -> None:
        first = self._draw.randrange(1, 300)
        self._upsert(self._draw.sample(["t", "u"], self._draw.randint(1, 2)), first, first + 20)

    def write_much(self, width: int | None = None) -> None:
        self._upsert(["t"], 2000, 3000, width=width or self._draw.choice([10, _WIDTH]))

    def delete(self) -> None:
        self._sql.execute("DELETE FROM u WHERE id %% 3 = %s", [self._draw.randrange(3)])

    def move_keys(self) -> None:
        self._sql.execute(_MOVE_KEY, [self._draw.randrange(1, 300)])

    def alter(self) -> None:
        self._columns += 1
        self._sql.execute(f"ALTER TABLE u ADD COLUMN c{self._columns} int")

    def analyze(self) -> None:
        self._sql.execute("ANALYZE t, u")

    def end_the_transaction(self) -> None:
        (self._writer.commit if self._draw.random() < 0.5 else self._writer.rollback)()
        self.hold()

    # the feed

    def steps(self) -> None:
        for _ in range(3):
            with self._attempts():
                self._feed.step()

    def compare(self) -> None:
        """Read a slice twice, and by SQL."""
        with self._attempts():
            if slice_ := self._slice():
                expected = items_of(self._feed, by_sql(slice_))
                for _ in range(2):
                    assert same(items_of(self._feed, slice_), expected), _DIFFERS

    def another_end(self) -> None:
        """Plan a step that ends elsewhere than the session was told."""
        with self._attempts():
            self._slice()
            usual = self._feed.limit
            self._feed.limit = replace(usual, bytes=self._draw.randrange(64 * KB, MB))
            try:
                self._feed.step()
            finally:
                self._feed.limit = usual

    # faults

    def kill_the_sessions(self) -> None:
        self._sql.execute(_END)

    def close_the_sessions(self) -> None:
        with self._attempts():
            for reader in READERS:
                self._planner.call(f"planner._{reader}.close")

    def kill_the_attempt(self) -> None:
        self._feed.restart()

    def break_off(self) -> None:
        """Stop to read in the middle of a slice."""
        with closing(PostgresReader(self._feed.context)) as reader, suppress(RetryableRangefeedError):
            if slice_ := self._slice():
                next(reader.read(slice_))
        self._feed.restart()

    def kill_sessions_in_a_slice(self) -> None:
        self._in_a_slice(self.kill_the_sessions)

    def close_sessions_in_a_slice(self) -> None:
        self._in_a_slice(self.close_the_sessions)

    def kill_the_planner_in_a_slice(self) -> None:
        self._in_a_slice(lambda: self._planner.signal(signal.SIGKILL))

    def cut_the_socket_in_a_slice(self) -> None:
        left = self._draw.randint(1, 4)

        def cut(name: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(log_socket.slice_from(name, start, end)):
                if number == left:
                    raise ConnectionError("cut")
                yield batch

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_slice, "slice_from", cut)
            self.compare()

    def stop_the_planner(self) -> None:
        """Read while its process is stopped; it goes on when the step is read, or when another attempt has begun."""
        with self._attempts():
            slice_, planner = self._slice(), self._planner
            planner.signal(signal.SIGSTOP)
            try:
                with pytest.MonkeyPatch.context() as patch, suppress(RetryableRangefeedError):
                    patch.setattr(log_socket, "_LIMIT_S", 0.2)
                    if slice_:
                        assert same(items_of(self._feed, slice_), items_of(self._feed, by_sql(slice_))), _DIFFERS
                if self._draw.random() < 0.5:
                    replaced = PlannerProcess(self._feed.context, {})
                    self._feed._attempts.planner = replaced  # a stopped one is not closed
                    self._feed.restart()
                    planner.signal(signal.SIGCONT)
                    self.steps()
            finally:
                planner.signal(signal.SIGCONT)
                if planner is not self._planner:
                    planner.close()

    def starve_the_planner(self) -> None:
        """Take its memory away, and give it much to read."""
        with suppress(RetryableRangefeedError, MemoryError, RuntimeError, OSError):
            self._planner.call("starve", self._draw.randrange(32 * MB))
            self.write_much(width=_WIDTH)
            self._feed.step()
        self._feed.restart()

    # what a test calls

    def hold(self) -> None:
        """Open a transaction, and write log behind it."""
        self._writer.execute("INSERT INTO t (id) VALUES (0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1")
        self._sql.execute("CREATE TABLE IF NOT EXISTS filler (v text)")
        self._sql.execute("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 500)")

    def end(self) -> None:
        """Catch up. Raises: AssertionError unless the feed has all rows, and every version of them."""
        self._writer.commit()
        for _ in range(_MOST_ATTEMPTS):
            try:
                self._feed.catch_up(limit_s=60.0)
                break
            except RetryableRangefeedError as error:
                failure = error
                self._feed.restart()
        else:
            raise AssertionError("the feed does not catch up") from failure
        for table in ("t", "u"):
            rows = table_of(self._sql, f"SELECT id, v FROM {table}")
            found = self._feed.rows(f"public.{table}")
            assert {key: row["v"] for key, row in found.items()} == {key: row["v"] for key, row in rows.items()}
        after = ((change.table, change.key[0], change.after["v"]) for change in self._feed.changes if change.after)
        assert self._written <= set(after), "a version of a row did not come"

    def names_a_session(self) -> bool:
        """Run a step, and return whether a session had its slice."""
        self.change()
        slice_ = self._slice()
        self._feed.step()
        return slice_ is not None and bool(slice_.payload.session)

    def _upsert(self, tables: list[str], first: int, last: int, *, width: int = 1) -> None:
        self._values += 1
        value = f"{self._values} " + "z" * width
        with self._sql.transaction():
            for table in tables:
                rows = f"INSERT INTO {table} (id, v) SELECT g, %s FROM generate_series(%s::int, %s) g"
                self._sql.execute(f"{rows} ON CONFLICT (id) DO UPDATE SET v = excluded.v", [value, first, last])
        self._written |= {(f"public.{table}", key, value) for table in tables for key in range(first, last + 1)}

    @property
    def _planner(self) -> PlannerProcess:
        planner = self._feed._attempts.planner
        assert isinstance(planner, PlannerProcess)
        return planner

    def _slice(self) -> Slice | None:
        """Plan a step, and return its slice of the log, if it has one."""
        planned = self._feed.plan()
        found = None if planned is None else planned[1][0]
        return found if found is not None and isinstance(found.payload, LogSlice) else None

    @contextmanager
    def _attempts(self) -> Iterator[None]:
        """Begin another attempt when one fails for a reason that a fault can be."""
        try:
            yield
        except RetryableRangefeedError as error:
            if "changed while its log was read" in str(error):
                raise AssertionError("a session gave the wrong shape of a table") from error
            self._feed.restart()

    def _in_a_slice(self, fault: Callable[[], None]) -> None:
        """Read a large slice, and let *fault* happen after the first batch. Another attempt follows."""
        self.write_much(width=_WIDTH)
        with self._attempts():
            if slice_ := self._slice():
                expected = items_of(self._feed, by_sql(slice_))
                with closing(PostgresReader(self._feed.context)) as reader:
                    items = reader.read(slice_)
                    found = [next(items)]
                    fault()
                    found += items
                assert same(found, expected), _DIFFERS
        self._feed.restart()


def play(database: str, sql: Sql, seed: int, reader: str, *, bug: str = "", events: int = 40) -> int:
    """Play the history of *seed*, and return how many slices a session gave. Raises: AssertionError."""
    draw = random.Random(f"{seed} {reader}")
    given = 0

    def counted(name: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        nonlocal given
        yield from log_socket.slice_from(name, start, end)
        given += 1

    def planner(parts: PostgresParts) -> PlannerProcess:
        return PlannerProcess(parts.context, SETTINGS[reader], bug)

    kinds = [name for name in vars(History) if not name.startswith("_") and name not in _NO_EVENTS]
    create_tables(sql)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_slice, "slice_from", counted)
        patch.setattr(log_slice, "WORTH_BYTES", draw.choice([256 * KB, 256 * MB]))
        patch.setattr(PostgresParts, "open_planner", planner)
        if bug:
            BUGS[bug].put(patch.setattr)
        with (
            caught_up(database, "t", "u", options={"fetch_size": 64 * KB}, bytes_=_STEP_BYTES[reader]) as feed,
            closing(psycopg.connect(database)) as writer,
        ):
            history = History(feed, writer, sql, draw)
            history.hold()
            for _ in range(events):
                kind = draw.choice(kinds) if draw.random() < _RARE else draw.choice(_OFTEN)
                getattr(history, kind)()
            history.end()
    return given


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))])
def test_no_history_with_faults_loses_or_changes_a_row(database: str, sql: Sql, seed: int, reader: str) -> None:
    assert play(database, sql, seed, reader), "no session gave a slice"


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_each_mistake_of_a_session_is_found(postgres_server: EmbeddedPostgres, bug: str) -> None:
    for seed in range(_MOST_SEEDS):
        with fresh_database(postgres_server) as database, psycopg.connect(database, autocommit=True) as sql:
            try:
                play(database, sql, seed, BUGS[bug].readers[seed % len(BUGS[bug].readers)], bug=bug)
            except Exception as error:
                print(f"seed {seed}: {error}")
                return
    pytest.fail(f"not found: {BUGS[bug].mistake}")
