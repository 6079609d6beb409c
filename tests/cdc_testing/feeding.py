"""Changefeeds of PostgreSQL tables without Spark: the conformance kit runs them, and every step is checked."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from cdc_conformance.rangefeeds.driver import Feed as Attempts
from cdc_conformance.rangefeeds.driver import Reading
from cdc_rangefeed_postgres.history import PostgresHistory
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.planner import PostgresPlanner
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.reader import PostgresReader
from cdc_rangefeed_postgres.scan_slice import ScanSlice
from cdc_testing.documented_role import documented

from cdc_core import Op, RangefeedContext, Rescan, RowBatch, Slice, StepLimit, Timestamp, Token
from cdc_core.store.values import Progress

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One row that was read."""

    table: str
    op: Op
    key: Key
    updated: Timestamp
    after: dict[str, Any] | None
    before: dict[str, Any] | None
    mvcc: Timestamp | None
    version: int
    step: int
    scanned: bool
    """Whether it was read from a table, not from the log."""
    key_type: pa.StructType
    unavailable: tuple[str, ...] = ()
    """The columns that `after` lacks, because the source does not know their values."""


@dataclass(slots=True)
class PostgresParts:
    """Opens the four parts of the source."""

    context: RangefeedContext
    attempts: Attempts | None = None

    def open_rangefeed(self) -> PostgresRangefeed:
        saved = None if self.attempts is None else self.attempts.saved
        return PostgresRangefeed(replace(self.context, saved=None if saved is None else saved.token))

    def open_planner(self) -> PostgresPlanner:
        return PostgresPlanner(self.context)

    def open_reader(self) -> PostgresReader:
        return PostgresReader(self.context)

    def open_history(self) -> PostgresHistory:
        return PostgresHistory(self.context)


class Feed:
    """A changefeed with its saved progress, and the tables of a consumer that applies every row.

    Every step is checked against the contract of rangefeeds, and the order of each key across all steps. The consumer
    starts a table anew with the first row that has another type of key.
    """

    def __init__(self, context: RangefeedContext, limit: StepLimit) -> None:
        self.context = context
        self._parts = parts = PostgresParts(context)
        self._attempts = parts.attempts = Attempts(parts, limit=limit, tables=(), patience_s=30.0)
        self.resolved: dict[str, Timestamp] = defaultdict(Timestamp)
        self.changes: list[Change] = []
        self.steps = 0
        self._pause = threading.Event()
        self.state: dict[str, dict[Key, dict[str, Any]]] = defaultdict(dict)
        self._key_types: dict[str, pa.StructType] = {}
        self._newest: dict[tuple[str, Key], Timestamp] = {}
        self.releases = True
        """Whether the source may forget what is saved."""
        self.start, self.restart, self.close = self._attempts.start, self._attempts.restart, self._attempts.close
        self.move = self._attempts.move

    @property
    def rangefeed(self) -> PostgresRangefeed:
        assert isinstance(self._attempts.rangefeed, PostgresRangefeed)
        return self._attempts.rangefeed

    @property
    def planner(self) -> PostgresPlanner:
        assert isinstance(self._attempts.planner, PostgresPlanner)
        return self._attempts.planner

    @property
    def reader(self) -> PostgresReader:
        assert isinstance(self._attempts.reader, PostgresReader)
        return self._attempts.reader

    @property
    def history(self) -> PostgresHistory:
        assert isinstance(self._attempts.history, PostgresHistory)
        return self._attempts.history

    def resume(self, *, options: dict[str, Any] | None = None, **context: Any) -> None:
        """Kill the attempt, and start another one with other *options*, and another *context*."""
        options_ = self.context.options if options is None else PostgresOptions(**options)
        self.context = self._parts.context = replace(self.context, options=options_, **context)
        self.restart()

    def now(self) -> Timestamp:
        """Return the source's clock, as the driver reads it."""
        return self._attempts.clock.now()

    @property
    def limit(self) -> StepLimit:
        return self._attempts.limit

    @limit.setter
    def limit(self, limit: StepLimit) -> None:
        self._attempts.limit = limit

    @property
    def saved(self) -> Token | None:
        """The last saved token, which may be an intent."""
        return None if self._attempts.saved is None else self._attempts.saved.token

    @saved.setter
    def saved(self, token: Token | None) -> None:
        self._attempts.saved = None if token is None else Progress(token=token)

    @property
    def token(self) -> Token:
        return self._attempts.progress.token

    @property
    def latest(self) -> Timestamp:
        return self._attempts.progress.latest

    def ask(self, *rescans: Rescan) -> None:
        """Ask for rescans: the next steps hold them."""
        self._attempts.asked += rescans

    def plan(self) -> tuple[Token, Sequence[Slice]] | None:
        """Plan a step; None while there is nothing to do."""
        plan = self._attempts.plan()
        return None if plan is None else (plan.end, plan.slices)

    def slices(self) -> Sequence[Slice]:
        """Plan a step, of which there must be one, and return its slices."""
        planned = self.plan()
        assert planned is not None
        return planned[1]

    def plan_scan(self) -> Sequence[Slice]:
        """Run steps until one that reads a table is planned, and return its slices."""
        while True:
            planned = self.plan()
            if planned is not None and isinstance(planned[1][0].payload, ScanSlice):
                return planned[1]
            self.step()

    def step(self) -> list[Change] | None:
        """Run one step; None, after a moment, if there was nothing to do."""
        plan = self._attempts.plan()
        if plan is None:
            self._pause.wait(0.005)
            return None
        assert plan.slices, "a step has at least one slice"
        latest = self.latest
        step = self._attempts.execute(plan)
        changes = [change for reading in step.readings for change in self._checked(reading)]
        greatest = max(mark.timestamp for mark in step.marks)
        for change in changes:
            assert change.updated <= greatest, "no row above its mark"
            assert change.updated > latest or (change.scanned and change.updated >= latest)
        for mark in step.marks:
            if mark.resolved:
                assert mark.timestamp >= self.resolved[mark.span.table], "resolved never moves back"
                self.resolved[mark.span.table] = mark.timestamp
        self._apply(changes)
        self.steps += 1
        self._attempts.finish(step, release=self.releases)
        return changes

    def steps_until(self, done: Callable[[], bool], *, limit_s: float = 180.0) -> None:
        """Run steps until *done*; fail after *limit_s*."""
        deadline = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < deadline, f"not done after {self.steps} steps: {self.saved}"
            self.step()

    def scan(self, **limits: float) -> None:
        """Run steps until the initial scan is complete."""
        self.steps_until(lambda: self.token["scan"] is None, **limits)

    def catch_up(self, **limits: float) -> None:
        """Run steps until everything that is committed now is resolved."""
        until = self.now()
        tables = [schema.name.full for schema in self.rangefeed.schemas()]
        self.steps_until(lambda: all(self.resolved[table] >= until for table in tables), **limits)

    def rows(self, table: str) -> dict[Key, dict[str, Any]]:
        """Return the consumer's rows of the table `schema.table`, by key."""
        return self.state[table]

    def _checked(self, reading: Reading) -> list[Change]:
        kinds = [isinstance(item, RowBatch) for item in reading.items]
        assert reading.marks, "every slice has a mark"
        assert kinds == sorted(kinds, reverse=True), "rows come before marks"
        scanned = isinstance(reading.slice.payload, ScanSlice)
        changes = [change for batch in reading.batches for change in self._changes(batch, scanned=scanned)]
        for change in changes:
            assert change.updated >= reading.slice.lower, "no row below the slice's lower bound"
        return changes

    def _changes(self, rows: RowBatch, *, scanned: bool) -> Iterator[Change]:
        for row in rows.batch.to_pylist():
            mvcc, unavailable = row.get("mvcc"), tuple(row.get("unavailable") or ())
            yield Change(
                table=rows.schema.name.qualified,
                op=Op(row["op"]),
                key=tuple(row["key"].values()),
                updated=Timestamp(**row["updated"]),
                after=_known(row["after"], unavailable),
                before=row.get("before"),
                mvcc=None if mvcc is None else Timestamp(**mvcc),
                version=rows.schema.version,
                step=self.steps,
                scanned=scanned,
                key_type=rows.schema.key_type,
                unavailable=unavailable,
            )

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            entry = (change.table, change.key)
            newest = self._newest.get(entry)
            assert newest is None or change.updated >= newest, f"older version of {entry} after a newer one"
            self._newest[entry] = change.updated
            if self._key_types.setdefault(change.table, change.key_type) != change.key_type:
                self._key_types[change.table] = change.key_type
                self.state[change.table] = {}
            if change.after is None:
                self.state[change.table].pop(change.key, None)
            else:
                known = self.state[change.table].get(change.key, {})
                kept = {name: known[name] for name in change.unavailable if name in known}
                self.state[change.table][change.key] = kept | change.after
        self.changes += changes


def _known(image: dict[str, Any] | None, unavailable: tuple[str, ...]) -> dict[str, Any] | None:
    return image and {name: value for name, value in image.items() if name not in unavailable}


@contextmanager
def feed_of(
    uri: str,
    *tables: str,
    options: dict[str, Any] | None = None,
    rows: int = 4_000_000,
    bytes_: int = 64 << 20,
    feed_id: str | None = None,
    **context: Any,
) -> Iterator[Feed]:
    """A feed that is not started yet. At the end everything that it created on the server is dropped."""
    settings = RangefeedContext(
        changefeed="test",
        feed_id=feed_id or secrets.token_hex(6),
        uri=documented(uri),
        tables=tables,
        options=PostgresOptions(**(options or {})),
        parallelism=context.pop("parallelism", 2),
    )
    feed = Feed(replace(settings, **context), StepLimit(rows=rows, bytes=bytes_))
    try:
        yield feed
    finally:
        feed.close()
        feed.rangefeed.drop(feed.saved)
        feed.rangefeed.close()


@contextmanager
def started(uri: str, *tables: str, checked: bool = False, **context: Any) -> Iterator[Feed]:
    """A feed as `feed_of` makes it, after its first start. When *checked*, `check` has accepted it before."""
    with feed_of(uri, *tables, **context) as feed:
        if checked:
            feed.rangefeed.check()
        feed.start()
        yield feed


@contextmanager
def caught_up(uri: str, *tables: str, **context: Any) -> Iterator[Feed]:
    """A feed as `started` makes it, that has delivered everything that was committed before."""
    with started(uri, *tables, **context) as feed:
        feed.catch_up()
        yield feed


@contextmanager
def again(feed: Feed, database: str, *tables: str, **context: Any) -> Iterator[Feed]:
    """The same changefeed with other tables, after its saved token, and with what its consumer has."""
    feed.close()
    with feed_of(database, *tables, feed_id=feed.context.feed_id, **context) as other:
        other.saved = feed.saved
        other.state = feed.state
        other.start()
        yield other
