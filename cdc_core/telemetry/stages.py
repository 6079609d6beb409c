"""Where the time of a task goes. At each moment a task is at one stage.

Measured a few times for each batch of rows, never for each row. Code that does a stage's work uses `stage`, whether or
not the time is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cdc_core.rows import RowBatch
from cdc_core.sink_calls import TracedRow
from cdc_core.telemetry.tally import Tally

SOURCE, ENCODE, SINK, STORE = "source", "encode", "sink", "store"
QUERY = "query"
"""Where a row is refused for what a query asks of it. No stage of a task's time: Spark evaluates queries."""
STAGES = (SOURCE, ENCODE, SINK, STORE)
"""Waiting for rows; in the encoder; elsewhere in the sink; in the progress store."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Why a component repeats something inside a call, and when, by `time.time()`."""

    reason: str
    next_at: float


class SliceTrace(Protocol):
    """The traced changes of a slice."""

    def rows_in(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        """Return those that are among *rows*, each with its index."""

    def reached(self, stage: str, rows: RowBatch) -> None:
        """Note that those among *rows* are at *stage* now."""


class Stages:
    """Seconds that one task spends at each stage, beginning at *first*. *changed* is called at every change.

    `changes` counts the changes of the stage. `repeat` is what the component at work repeats by itself. `tally` is what
    the task counts beside the time. `trace` has the changes of the slice that are traced, None unless there are some.

    The `CallObserver` of sinks that the task calls. What a sink repeats asks `before_repeating` first, which may raise.
    """

    def __init__(self, first: str, *, changed: Callable[[Stages], None] | None = None) -> None:
        self.now = first
        self.changes = 0
        self.repeat: Repeat | None = None
        self.tally = Tally()
        self.trace: SliceTrace | None = None
        self.before_repeating: Callable[[], object] = lambda: None
        self._changed = changed
        self._since = time.monotonic()
        self._seconds = dict.fromkeys(STAGES, 0.0)

    @property
    def seconds(self) -> dict[str, float]:
        """By stage, up to this moment."""
        return {**self._seconds, self.now: self._seconds[self.now] + time.monotonic() - self._since}

    @property
    def settled_seconds(self) -> Mapping[str, float]:
        """By stage, without the time at the current one."""
        return self._seconds

    def enter(self, stage: str) -> str:
        """Enter *stage*, and return the one that this ends."""
        before, moment = self.now, time.monotonic()
        if stage != before:
            self._seconds[before] += moment - self._since
            self.now, self._since, self.repeat = stage, moment, None
            self.changes += 1
            self._tell()
        return before

    @contextmanager
    def repeating(self, reason: str, *, next_attempt_s: float) -> Iterator[None]:
        """Show, inside the block, what the component at work repeats. Raises: as `before_repeating`."""
        self.before_repeating()
        self._say(Repeat(reason=reason, next_at=time.time() + next_attempt_s))
        try:
            yield
        finally:
            self._say(None)

    def traced_rows(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        """Return the rows of *rows* that are traced, each with its index."""
        return () if self.trace is None else self.trace.rows_in(rows)

    @contextmanager
    def measured(self) -> Iterator[Stages]:
        """Measure what this thread does inside the block; other threads are not measured."""
        token = _measured.set(self)
        try:
            yield self
        finally:
            _measured.reset(token)

    def _say(self, repeat: Repeat | None) -> None:
        if repeat != self.repeat:
            self.repeat = repeat
            self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self)


_measured: ContextVar[Stages | None] = ContextVar("cdc_stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Be at stage *name* inside the block."""
    stages = _measured.get()
    if stages is None:
        yield
        return
    before = stages.enter(name)
    try:
        yield
    finally:
        stages.enter(before)


def waited_for(items: Iterable[R]) -> Iterator[R]:
    """Yield *items*; the wait for the next one is at the stage `source`."""
    iterator = iter(items)
    while True:
        with stage(SOURCE):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def measured_stages() -> Stages | None:
    """Return the stages of the task that this thread works for, None where they are not measured."""
    return _measured.get()
