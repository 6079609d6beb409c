"""Changefeeds of PostgreSQL tables without Spark, driven by the conformance kit, checked at every step."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cdc_conformance.rangefeeds.driver import Feed as Run
from cdc_conformance.rangefeeds.driver import Reading
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed

from cdc_core import Op, RangefeedContext, RowBatch, Slice, StepLimit, Timestamp, Token
from cdc_core.store.progress import Progress

__all__ = ["Change", "Feed", "feed_of"]

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


class Feed:
    """A changefeed in the state that its last saved step left it in, and what a consumer has of it.

    Every step is checked against the contract of `Rangefeed`; the order of each key over all steps too.
    """

    def __init__(self, context: RangefeedContext, limit: StepLimit) -> None:
        self.context = context
        self._run = Run(lambda: PostgresRangefeed(self.context), limit=limit, tables=(), patience_s=30.0)
        self.resolved: dict[str, Timestamp] = defaultdict(Timestamp)
        self.changes: list[Change] = []
        self.steps = 0
        self.state: dict[str, dict[Key, dict[str, Any]]] = defaultdict(dict)
        self._newest: dict[tuple[str, Key], Timestamp] = {}
        self.start, self.restart, self.close = self._run.start, self._run.restart, self._run.close

    @property
    def driver(self) -> PostgresRangefeed:
        return self._instance(self._run.driver)

    @property
    def planner(self) -> PostgresRangefeed:
        return self._instance(self._run.planner)

    @property
    def reader(self) -> PostgresRangefeed:
        return self._instance(self._run.executor)

    @property
    def coordinator(self) -> PostgresRangefeed:
        return self._instance(self._run.coordinator)

    @property
    def limit(self) -> StepLimit:
        return self._run.limit

    @limit.setter
    def limit(self, limit: StepLimit) -> None:
        self._run.limit = limit

    @property
    def saved(self) -> Token | None:
        """The token that was saved last, be it an intent."""
        return None if self._run.saved is None else self._run.saved.token

    @saved.setter
    def saved(self, token: Token | None) -> None:
        self._run.saved = None if token is None else Progress(token=token)

    @property
    def token(self) -> Token:
        return self._run.progress.token

    @property
    def latest(self) -> Timestamp:
        return self._run.progress.latest

    def plan(self) -> tuple[Token, Sequence[Slice]] | None:
        """Plan a step; None when there is nothing to do yet."""
        plan = self._run.plan()
        return None if plan is None else (plan.end, plan.slices)

    def step(self) -> list[Change] | None:
        """Run one step to its end; None when there was nothing to do."""
        plan = self._run.plan()
        if plan is None:
            return None
        assert plan.slices, "a step has at least one slice"
        latest = self.latest
        step = self._run.execute(plan)
        changes = [change for reading in step.readings for change in self._checked(reading)]
        greatest = max(mark.timestamp for mark in step.marks)
        for change in changes:
            assert change.updated <= greatest, "no row above its mark"
            assert change.updated > latest or (change.op is Op.SCAN and change.updated >= latest)
        for mark in step.marks:
            if mark.resolved:
                assert mark.timestamp >= self.resolved[mark.span.table], "resolved never moves back"
                self.resolved[mark.span.table] = mark.timestamp
        self._apply(changes)
        self.steps += 1
        self._run.finish(step)
        return changes

    def steps_until(self, done: Callable[[], bool], *, limit_s: float = 30.0) -> None:
        """Run steps until *done*; fail after *limit_s*."""
        deadline = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < deadline, f"not done after {self.steps} steps: {self.saved}"
            self.step()

    def scan(self, **limits: float) -> None:
        """Run steps until the initial scan is complete."""
        self.steps_until(lambda: self.token["scan"] is None, **limits)

    def catch_up(self, **limits: float) -> None:
        """Run steps until all that is committed now is resolved."""
        until = self.driver.now()
        tables = [schema.name.full for schema in self.driver.schemas()]
        self.steps_until(lambda: all(self.resolved[table] >= until for table in tables), **limits)

    def rows(self, table: str) -> dict[Key, dict[str, Any]]:
        """Return the table `schema.table` as a consumer has it, by key."""
        return self.state[table]

    def _checked(self, reading: Reading) -> list[Change]:
        kinds = [isinstance(item, RowBatch) for item in reading.items]
        assert reading.marks, "every slice has a mark"
        assert kinds == sorted(kinds, reverse=True), "rows come before marks"
        changes = [change for batch in reading.batches for change in self._changes(batch)]
        for change in changes:
            assert change.updated >= reading.slice.lower, "no row below the slice's lower bound"
        return changes

    @staticmethod
    def _instance(rangefeed: object) -> PostgresRangefeed:
        assert isinstance(rangefeed, PostgresRangefeed)
        return rangefeed

    def _changes(self, rows: RowBatch) -> Iterator[Change]:
        for row in rows.batch.to_pylist():
            mvcc = row.get("mvcc")
            yield Change(
                table=rows.schema.name.qualified,
                op=Op(row["op"]),
                key=tuple(row["key"].values()),
                updated=Timestamp(**row["updated"]),
                after=row["after"],
                before=row.get("before"),
                mvcc=None if mvcc is None else Timestamp(**mvcc),
                version=rows.schema.version,
                step=self.steps,
            )

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            entry = (change.table, change.key)
            newest = self._newest.get(entry)
            assert newest is None or change.updated >= newest, f"older version of {entry} after a newer one"
            self._newest[entry] = change.updated
            if change.after is None:
                self.state[change.table].pop(change.key, None)
            else:
                self.state[change.table][change.key] = change.after
        self.changes += changes


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
    """A feed that is not started yet; what it made on the server is dropped at the end."""
    settings = RangefeedContext(
        changefeed="test",
        feed_id=feed_id or secrets.token_hex(6),
        uri=uri,
        tables=tables,
        options=PostgresOptions(**(options or {})),
        parallelism=context.pop("parallelism", 2),
    )
    feed = Feed(replace(settings, **context), StepLimit(rows=rows, bytes=bytes_))
    try:
        yield feed
    finally:
        feed.close()
        feed.driver.drop(feed.saved)
        feed.driver.close()
