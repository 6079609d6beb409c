"""The engine's turn without Spark: drives a rangefeed step by step in this process and checks its contract."""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed

from cdc_core import Mark, Op, RangefeedContext, RowBatch, Slice, StepLimit, Timestamp, Token

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
    """A changefeed in the state that its last saved step left it in.

    `restart` behaves as kill -9 and a new run: nothing but the saved token and `latest` survives. Every step is checked
    against the contract of `Rangefeed`; the order of each key over all steps too.
    """

    def __init__(self, context: RangefeedContext, limit: StepLimit) -> None:
        self.context = context
        self.limit = limit
        self.saved: Token | None = None
        self.latest = Timestamp()
        self.resolved: dict[str, Timestamp] = defaultdict(Timestamp)
        self.changes: list[Change] = []
        self.steps = 0
        self.keep_changes = True
        self.state: dict[str, dict[Key, dict[str, Any]]] = defaultdict(dict)
        self._newest: dict[tuple[str, Key], Timestamp] = {}
        self._open()

    def _open(self) -> None:
        self.driver, self.planner, self.reader, self.coordinator = (PostgresRangefeed(self.context) for _ in range(4))

    def close(self) -> None:
        for rangefeed in (self.driver, self.planner, self.reader, self.coordinator):
            rangefeed.close()

    def save(self, token: Token) -> None:
        self.saved = json.loads(json.dumps(token))

    def start(self) -> Token:
        """What the driver does when a run starts."""
        self.driver.check()
        token = self.driver.start(self.saved, self.save)
        self.save(token)
        return token

    def restart(self) -> Token:
        self.close()
        self._open()
        return self.start()

    @property
    def token(self) -> Token:
        assert self.saved is not None
        return self.saved

    def plan(self) -> tuple[Token, Sequence[Slice]] | None:
        """Plan a step; None when there is nothing to do yet."""
        end = self.planner.advance(self.token, after=self.latest, limit=self.limit)
        if end == self.token:
            return None
        slices = self.planner.slices(self.token, end, after=self.latest)
        assert slices, "a step has at least one slice"
        return json.loads(json.dumps(end)), slices

    def step(self) -> list[Change] | None:
        """Run one step to its end; None when there was nothing to do."""
        planned = self.plan()
        if planned is None:
            return None
        end, slices = planned
        changes: list[Change] = []
        marks: list[Mark] = []
        for slice_ in slices:
            found, marked = self._read(slice_)
            changes += found
            marks += marked
        self._check_marks(changes, marks)
        self.save(end)
        self.steps += 1
        for mark in marks:
            self.latest = max(self.latest, mark.timestamp)
            if mark.resolved:
                assert mark.timestamp >= self.resolved[mark.span.table], "resolved never moves back"
                self.resolved[mark.span.table] = mark.timestamp
        self._apply(changes)
        self.coordinator.release(end)
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

    def _read(self, slice_: Slice) -> tuple[list[Change], list[Mark]]:
        changes: list[Change] = []
        marks: list[Mark] = []
        for item in self.reader.read(slice_):
            if isinstance(item, Mark):
                marks.append(item)
                continue
            assert not marks, "rows come before marks"
            changes += self._changes(item)
        assert marks, "every slice has a mark"
        for change in changes:
            assert change.updated >= slice_.lower, "no row below the slice's lower bound"
        return changes, marks

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

    def _check_marks(self, changes: Sequence[Change], marks: Sequence[Mark]) -> None:
        greatest = max(mark.timestamp for mark in marks)
        for change in changes:
            assert change.updated <= greatest, "no row above its mark"
            assert change.updated > self.latest or (change.op is Op.SCAN and change.updated >= self.latest)

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
        if self.keep_changes:
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
