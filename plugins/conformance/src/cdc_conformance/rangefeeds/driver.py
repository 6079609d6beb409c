"""Drives a rangefeed step by step in this process, in the order of `cdc_core.engine.step_machine`.

It checks nothing: it collects what the rangefeed returns, and each promise looks at its own part of that. The step
machine ends a changefeed at the first broken contract, so a rangefeed with one mistake would fail every test.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import pytest

from cdc_conformance.rangefeeds.changes import Change, changes_of
from cdc_core import (
    Frontier,
    Move,
    Rangefeed,
    Rescan,
    RowBatch,
    Slice,
    SliceReader,
    SourceHistory,
    Span,
    SpanMark,
    StepLimit,
    StepPlanner,
    Timestamp,
    Token,
)
from cdc_core.engine.step_machine import folded
from cdc_core.store.values import Progress

Part = Rangefeed | StepPlanner | SliceReader | SourceHistory

_PAUSE_S = 0.005
"""The wait between two calls of a planner that has nothing to do."""
_LEAST_CALLS = 30
"""A planner counts as stuck only after so many calls, however slow the machine is."""
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The items that one slice yielded, in their order."""

    slice: Slice
    items: tuple[RowBatch | SpanMark, ...]
    changes: tuple[Change, ...]

    @property
    def batches(self) -> list[RowBatch]:
        return [item for item in self.items if isinstance(item, RowBatch)]

    @property
    def marks(self) -> list[SpanMark]:
        return [item for item in self.items if isinstance(item, SpanMark)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned step. Its slices were pickled and unpickled, its end was written as JSON and read back."""

    start: Token
    end: Token
    slices: tuple[Slice, ...]
    pickled: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step whose slices were all read."""

    number: int
    plan: Plan
    readings: tuple[Reading, ...]

    @property
    def changes(self) -> list[Change]:
        return [change for reading in self.readings for change in reading.changes]

    @property
    def marks(self) -> list[SpanMark]:
        return [mark for reading in self.readings for mark in reading.marks]


class RangefeedParts(Protocol):
    """Opens new instances of a rangefeed's four parts, as `cdc_core.config.parts` does."""

    def open_rangefeed(self) -> Rangefeed: ...

    def open_planner(self) -> StepPlanner: ...

    def open_reader(self) -> SliceReader: ...

    def open_history(self) -> SourceHistory: ...


class Feed:
    """One changefeed: its saved progress, and the open parts of its rangefeed.

    Driver, planner, executor and coordinator each have their own instance; `clock` is the planner that the driver opens
    to read the source's clock. Tokens pass between them as JSON, slices pickled. `restart` acts like kill -9 and a new
    attempt: only saved progress survives.
    """

    rangefeed: Rangefeed
    clock: StepPlanner
    planner: StepPlanner
    reader: SliceReader
    history: SourceHistory

    def __init__(self, parts: RangefeedParts, *, limit: StepLimit, tables: Sequence[str], patience_s: float) -> None:
        self.parts = parts
        self.limit = limit
        self.patience_s = patience_s
        self.saved: Progress | None = None
        self.saves: list[Progress] = []
        """All progress that was saved, oldest first, without intents."""
        self.steps: list[Step] = []
        self.finished: list[Step] = []
        """The steps that were saved."""
        self.changes: list[Change] = []
        self.asked: list[Rescan] = []
        """The rescans that were asked for and are in no saved token yet."""
        self._written = {table.rpartition(".")[2].strip('"'): table for table in tables}
        self._open()

    @property
    def opened(self) -> Sequence[Part]:
        """The open instances of this attempt."""
        return self.rangefeed, self.clock, self.planner, self.reader, self.history

    # attempts

    def start(self) -> Token:
        """Start an attempt, as the driver does."""
        self._started = True
        self.rangefeed.check()
        saved = None if self.saved is None else self.saved.token
        token = _through_json(self.rangefeed.start(saved, self.save_intent))
        if self.saved is None or not list(self.saved.frontier):
            spans = [Span(schema.name.full) for schema in self.rangefeed.schemas()]
            self.save(Progress(token=token, frontier=Frontier(spans)))
        else:
            self.save(replace(self.saved, token=token))
        return token

    def restart(self, saved: Progress | None = None) -> Token:
        """Kill the attempt and start another one from *saved*, by default from the last saved progress."""
        self.kill()
        if saved is not None:
            self.saved = saved
        return self.start()

    def kill(self) -> None:
        """End the attempt. The next one has new instances."""
        self.close()
        self._open()

    def move(self, to: str | Token) -> Move:
        """Kill the attempt and move the changefeed, as `cdc move` does."""
        self.kill()
        progress = self.progress
        found = self.rangefeed.move(progress.token, to)
        self.saved = replace(progress, token=_through_json(found.token))
        return found

    def close(self) -> None:
        for part in self.opened:
            part.close()

    def drop(self) -> None:
        """Drop what the changefeed created, as a cancellation does."""
        self.rangefeed.drop(None if self.saved is None else self.saved.token)

    def abandon(self) -> None:
        """Clean up, whatever state this is in."""
        with suppress(Exception):
            self.close()
        with suppress(Exception):
            self.drop()
        with suppress(Exception):
            self.rangefeed.close()

    # steps

    @property
    def progress(self) -> Progress:
        assert self.saved is not None, "the feed was not started"
        return self.saved

    @property
    def resolved(self) -> Timestamp:
        """The resolved timestamp of all tables together."""
        return self.progress.resolved

    def plan(self) -> Plan | None:
        """Plan a step; None while there is nothing to do."""
        progress = self.progress
        begin = self._with_rescans(progress.token)
        end = _through_json(self.planner.advance(begin, after=progress.latest, limit=self.limit))
        if end == begin:
            return None
        slices = self.planner.slices(begin, end, after=progress.latest)
        pickled = tuple(pickle.dumps(slice_) for slice_ in slices)
        return Plan(start=begin, end=end, slices=tuple(map(pickle.loads, pickled)), pickled=pickled)

    def _with_rescans(self, start: Token) -> Token:
        again = self.planner.scan_again(start, self.asked) if self.asked else None
        if again == start:  # there is nothing to read
            self.asked.clear()
        return start if again is None else _through_json(again)

    def read(self, slice_: Slice, *, index: int = 0, reader: SliceReader | None = None) -> Reading:
        """Read a slice to its end, by default with the reader of this attempt."""
        items = tuple((reader or self.reader).read(slice_))
        other = [type(item).__name__ for item in items if not isinstance(item, RowBatch | SpanMark)]
        assert not other, f"read() yielded {other[0]}, which is neither a RowBatch nor a SpanMark"
        changes = tuple(change for item in items if isinstance(item, RowBatch) for change in self._changes(item, index))
        return Reading(slice=slice_, items=items, changes=changes)

    def execute(self, plan: Plan) -> Step:
        """Read all slices of a step. Nothing is saved yet."""
        readings = tuple(self.read(slice_, index=index) for index, slice_ in enumerate(plan.slices))
        step = Step(number=len(self.steps), plan=plan, readings=readings)
        self.steps.append(step)
        self.changes += step.changes
        return step

    def finish(self, step: Step, *, release: bool = True) -> None:
        """Save the progress of a step that was read, and release the history before its end."""
        progress = self.progress
        if step.plan.start != progress.token:
            self.asked.clear()
        self.save(folded(progress, step.plan.end, step.marks))
        self.finished.append(step)
        if release:
            self.history.release(self.progress.token)
            self.history.metrics()

    def step(self, *, release: bool = True) -> Step | None:
        """Run one step; None if there was nothing to do."""
        plan = self.plan()
        if plan is None:
            return None
        step = self.execute(plan)
        self.finish(step, release=release)
        return step

    @property
    def readings(self) -> list[Reading]:
        """The slices of all steps, as they were read."""
        return [reading for step in self.steps for reading in step.readings]

    @property
    def batches(self) -> list[RowBatch]:
        return [batch for reading in self.readings for batch in reading.batches]

    # many steps

    def steps_until(self, done: Callable[[], bool], *, what: str, release: bool = True) -> None:
        """Run steps until *done*. If that takes too long, fail with the message *what*."""
        for _ in self.patiently(what):
            if done():
                return
            self.step(release=release)

    def scan(self, *, release: bool = True) -> Self:
        """Run steps until the initial scan is complete, and return this. Starts the attempt, if that was not done."""
        if not self._started:
            self.start()
        self.steps_until(lambda: not self.scanning, what="the initial scan is not complete", release=release)
        return self

    @property
    def scanning(self) -> bool:
        return self.rangefeed.scan_progress(self.progress.token) is not None

    def catch_up(self, *, release: bool = True) -> None:
        """Run steps until everything that is committed now is resolved."""
        until = self.clock.now()
        self.steps_until(
            lambda: self.resolved >= until, what=f"the commits up to {until} are not resolved", release=release
        )

    def next_plan(self) -> Plan:
        """Return the next step as soon as there is one."""
        for _ in self.patiently("there is no further step"):
            plan = self.plan()
            if plan is not None:
                return plan
        raise AssertionError

    def patiently(self, what: str | Callable[[], str]) -> Iterator[None]:
        """Yield until the caller stops. Fail when no step came for `patience_s`, or when very many took longer.

        *what* is the message of that failure, or a function that returns it.
        """
        begun, known, calls = len(self.steps), len(self.steps), 0
        deadline = enough = time.monotonic() + self.patience_s
        pause = threading.Event()
        while True:
            yield
            calls += 1
            if len(self.steps) > known:
                known, calls, deadline = len(self.steps), 0, time.monotonic() + self.patience_s
            elif calls >= _LEAST_CALLS and time.monotonic() > deadline:
                break
            else:
                pause.wait(_PAUSE_S)
            if known - begun > _MOST_STEPS and time.monotonic() > enough:
                break
        token = None if self.saved is None else self.saved.token
        said = what if isinstance(what, str) else what()
        pytest.fail(f"{said} after {known - begun} steps; the saved token is {token}")

    # progress

    def save(self, progress: Progress) -> None:
        self.saved = replace(progress, token=_through_json(progress.token))
        self.saves.append(self.saved)

    def save_intent(self, token: Token) -> None:
        """Save an intent: the function that `Rangefeed.start` gets."""
        known = Progress(token={}) if self.saved is None else self.saved
        self.saved = replace(known, token=_through_json(token))

    def _open(self) -> None:
        self._started = False
        self.rangefeed = self.parts.open_rangefeed()
        self.clock, self.planner = self.parts.open_planner(), self.parts.open_planner()
        self.reader = self.parts.open_reader()
        self.history = self.parts.open_history()

    def _changes(self, rows: RowBatch, index: int) -> Iterator[Change]:
        table = rows.schema.name.table
        return changes_of(rows, table=self._written.get(table, table), step=len(self.steps), index=index)


def _through_json(token: Token) -> Token:
    result: Token = json.loads(json.dumps(token))
    return result
