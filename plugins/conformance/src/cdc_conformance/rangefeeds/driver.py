"""The engine's turn without Spark: drives a rangefeed step by step in this process, exactly as the engine does.

It judges nothing: what a rangefeed hands out is noted, and each promise looks at its own part of it.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from cdc_conformance.rangefeeds.changes import Change, changes_of
from cdc_core import Frontier, Mark, Rangefeed, RowBatch, Slice, Span, StepLimit, Timestamp, Token
from cdc_core.store.progress import Progress

__all__ = ["Feed", "Plan", "Reading", "Step"]

_PAUSE_S = 0.005
"""Between two questions to a rangefeed that has nothing to do."""
_LEAST_ASKED = 30
"""So often at the least it is asked before it counts as stuck: a busy machine is no broken promise."""
_MOST_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one slice held, in the order in which it came."""

    slice: Slice
    items: tuple[RowBatch | Mark, ...]
    changes: tuple[Change, ...]

    @property
    def batches(self) -> list[RowBatch]:
        return [item for item in self.items if isinstance(item, RowBatch)]

    @property
    def marks(self) -> list[Mark]:
        return [item for item in self.items if isinstance(item, Mark)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A step that was planned: its slices have gone through pickle, its end through JSON."""

    start: Token
    end: Token
    slices: tuple[Slice, ...]
    pickled: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that was read to its end."""

    number: int
    plan: Plan
    readings: tuple[Reading, ...]

    @property
    def changes(self) -> list[Change]:
        return [change for reading in self.readings for change in reading.changes]

    @property
    def marks(self) -> list[Mark]:
        return [mark for reading in self.readings for mark in reading.marks]


class Feed:
    """One changefeed: what it has saved, and the instances of its rangefeed in the processes of the present run.

    Driver, planner, executor and coordinator are separate instances. Tokens cross between them as JSON and slices
    pickled. `restart` behaves as kill -9 and a new run: nothing but what was saved survives.
    """

    def __init__(
        self, open_: Callable[[], Rangefeed], *, limit: StepLimit, tables: Sequence[str], patience_s: float
    ) -> None:
        self.open = open_
        self.limit = limit
        self.patience_s = patience_s
        self.saved: Progress | None = None
        self.saves: list[Progress] = []
        """All that was ever saved, oldest first; intents are not in it."""
        self.steps: list[Step] = []
        self.changes: list[Change] = []
        self._written = {table.rpartition(".")[2].strip('"'): table for table in tables}
        self._run()

    # the life of a run

    def start(self) -> Token:
        """What the driver does when a run starts."""
        self.driver.check()
        token = _through_json(self.driver.start(None if self.saved is None else self.saved.token, self.save_intent))
        if self.saved is None or not list(self.saved.frontier):
            spans = [Span(schema.name.full) for schema in self.driver.schemas()]
            self.save(Progress(token=token, frontier=Frontier(spans)))
        else:
            self.save(replace(self.saved, token=token))
        return token

    def restart(self, saved: Progress | None = None) -> Token:
        """Kill the run, and start another one from *saved*, by default from what was saved last."""
        self.kill()
        if saved is not None:
            self.saved = saved
        return self.start()

    def kill(self) -> None:
        """End the run; the next one has new instances."""
        self.close()
        self._run()

    def close(self) -> None:
        for rangefeed in (self.driver, self.planner, self.executor, self.coordinator):
            rangefeed.close()

    def drop(self) -> None:
        """What cancelling the changefeed does."""
        self.driver.drop(None if self.saved is None else self.saved.token)

    def abandon(self) -> None:
        """Leave nothing behind, whatever state this is in."""
        with suppress(Exception):
            self.close()
        with suppress(Exception):
            self.drop()
        with suppress(Exception):
            self.driver.close()

    # steps

    @property
    def progress(self) -> Progress:
        assert self.saved is not None, "the feed was not started"
        return self.saved

    @property
    def resolved(self) -> Timestamp:
        """Up to which everything is complete, over all tables."""
        return self.progress.frontier.high_water

    def plan(self) -> Plan | None:
        """Plan a step; None when there is nothing to do yet."""
        progress = self.progress
        end = _through_json(self.planner.advance(progress.token, after=progress.latest, limit=self.limit))
        if end == progress.token:
            return None
        slices = self.planner.slices(progress.token, end, after=progress.latest)
        pickled = tuple(pickle.dumps(slice_) for slice_ in slices)
        return Plan(start=progress.token, end=end, slices=tuple(map(pickle.loads, pickled)), pickled=pickled)

    def read(self, slice_: Slice, *, index: int = 0, rangefeed: Rangefeed | None = None) -> Reading:
        """Read a slice to its end, by default with the run's executor."""
        items = tuple((rangefeed or self.executor).read(slice_))
        changes = tuple(change for item in items if isinstance(item, RowBatch) for change in self._changes(item, index))
        return Reading(slice=slice_, items=items, changes=changes)

    def execute(self, plan: Plan) -> Step:
        """Read all slices of a step; nothing is saved yet."""
        readings = tuple(self.read(slice_, index=index) for index, slice_ in enumerate(plan.slices))
        step = Step(number=len(self.steps), plan=plan, readings=readings)
        self.steps.append(step)
        self.changes += step.changes
        return step

    def finish(self, step: Step, *, release: bool = True) -> None:
        """Save a step that was read, and let the source forget what lies before it."""
        progress = self.progress
        frontier = Frontier.from_json(progress.frontier.to_json())
        for mark in step.marks:
            if mark.resolved:
                frontier.forward(mark.span, mark.timestamp)
        latest = max([progress.latest, *(mark.timestamp for mark in step.marks)])
        self.save(Progress(token=step.plan.end, frontier=frontier, latest=latest))
        if release:
            self.coordinator.release(step.plan.end)
            self.coordinator.metrics()

    def step(self, *, release: bool = True) -> Step | None:
        """Run one step to its end; None when there was nothing to do."""
        plan = self.plan()
        if plan is None:
            return None
        step = self.execute(plan)
        self.finish(step, release=release)
        return step

    # until something holds

    def steps_until(self, done: Callable[[], bool], *, what: str, release: bool = True) -> None:
        """Run steps until *done*; fail, saying *what* did not come, when that takes too long."""
        for _ in self.patiently(what):
            if done():
                return
            self.step(release=release)

    def scan(self, *, release: bool = True) -> None:
        """Run steps until the initial scan is complete."""
        self.steps_until(lambda: not self.scanning, what="the initial scan is not complete", release=release)

    @property
    def scanning(self) -> bool:
        return self.driver.scan_progress(self.progress.token) is not None

    def catch_up(self, *, release: bool = True) -> None:
        """Run steps until all that is committed now is resolved."""
        until = self.driver.now()
        self.steps_until(
            lambda: self.resolved >= until,
            what=f"what is committed now is not resolved up to {until}",
            release=release,
        )

    def next_plan(self) -> Plan:
        """Return the next step as soon as there is one."""
        for _ in self.patiently("there is no further step"):
            plan = self.plan()
            if plan is not None:
                return plan
        raise AssertionError

    def patiently(self, what: str) -> Iterator[None]:
        """Yield until the caller breaks off; fail, saying *what* is the matter, when that takes too long.

        Too long is when no step came for a while, or very many did.
        """
        begun, known, asked = len(self.steps), len(self.steps), 0
        deadline = time.monotonic() + self.patience_s
        pause = threading.Event()
        while True:
            yield
            asked += 1
            if len(self.steps) > known:
                known, asked, deadline = len(self.steps), 0, time.monotonic() + self.patience_s
            elif asked >= _LEAST_ASKED and time.monotonic() > deadline:
                break
            else:
                pause.wait(_PAUSE_S)
            if known - begun > _MOST_STEPS:
                break
        pytest.fail(f"{what} after {known - begun} steps; saved is {None if self.saved is None else self.saved.token}")

    # what is saved

    def save(self, progress: Progress) -> None:
        self.saved = replace(progress, token=_through_json(progress.token))
        self.saves.append(self.saved)

    def save_intent(self, token: Token) -> None:
        """What `start` is given to save its intent with."""
        known = Progress(token={}) if self.saved is None else self.saved
        self.saved = replace(known, token=_through_json(token))

    def _run(self) -> None:
        self.driver, self.planner, self.executor, self.coordinator = (self.open() for _ in range(4))

    def _changes(self, rows: RowBatch, index: int) -> Iterator[Change]:
        table = rows.schema.name.table
        return changes_of(rows, table=self._written.get(table, table), step=len(self.steps), index=index)


def _through_json(token: Token) -> Token:
    result: Token = json.loads(json.dumps(token))
    return result
