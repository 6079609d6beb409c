"""Where the time of a task goes: at each moment it is at one stage.

Measured a few times for each batch of rows, never for each row. Code that does a stage's work says so by `stage` or
`timed`, and need not know whether anybody measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from cdc_core.encoder import Encoder
from cdc_core.file_body import FileBody

__all__ = [
    "ENCODE",
    "SINK",
    "SOURCE",
    "STAGES",
    "STORE",
    "Repeat",
    "Stages",
    "repeating",
    "stage",
    "time_encoder",
    "waited_for",
]

SOURCE, ENCODE, SINK, STORE = "source", "encode", "sink", "store"
STAGES = (SOURCE, ENCODE, SINK, STORE)
"""Waiting for rows; inside the encoder; inside the sink otherwise; with the progress store."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Why a component tries something again inside a call, and when, by `time.time()`."""

    reason: str
    next_at: float


class Stages:
    """Seconds that one task has spent at each stage; it begins at *first*. *changed* is called at every change.

    `changes` counts those from one stage to another. `repeat` is what the component at work repeats by itself.
    """

    def __init__(self, first: str, *, changed: Callable[[Stages], None] | None = None) -> None:
        self.now = first
        self.changes = 0
        self.repeat: Repeat | None = None
        self._changed = changed
        self._since = time.monotonic()
        self._seconds = dict.fromkeys(STAGES, 0.0)

    @property
    def seconds(self) -> dict[str, float]:
        """By stage, up to this moment."""
        return {**self._seconds, self.now: self._seconds[self.now] + time.monotonic() - self._since}

    @property
    def settled_seconds(self) -> Mapping[str, float]:
        """By stage, up to the moment when the one began that it is at now."""
        return self._seconds

    def enter(self, stage: str) -> str:
        """Let *stage* begin, and return the one that ends thereby."""
        before, moment = self.now, time.monotonic()
        if stage != before:
            self._seconds[before] += moment - self._since
            self.now, self._since, self.repeat = stage, moment, None
            self.changes += 1
            self._tell()
        return before

    def say(self, repeat: Repeat | None) -> None:
        """Note that the component at work repeats something, or that it does no longer."""
        if repeat != self.repeat:
            self.repeat = repeat
            self._tell()

    @contextmanager
    def measured(self) -> Iterator[Stages]:
        """Measure what this thread does inside the block. Another thread's work costs the task no time."""
        token = _measured.set(self)
        try:
            yield self
        finally:
            _measured.reset(token)

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self)


_measured: ContextVar[Stages | None] = ContextVar("cdc_stages", default=None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Be at stage *name* inside the block, where the time is measured."""
    stages = _measured.get()
    if stages is None:
        yield
        return
    before = stages.enter(name)
    try:
        yield
    finally:
        stages.enter(before)


@contextmanager
def repeating(reason: str, *, next_attempt_s: float) -> Iterator[None]:
    """Let the changefeed's status say, inside the block, that its component tries again for *reason*, and when.

    For a component that repeats something by itself before its call returns, around its wait and in the thread that
    the engine called. Where nobody looks it does nothing. *reason* is one line, without secrets, not shown in full when
    it is long; an error that is raised needs none of this.
    """
    stages = _measured.get()
    if stages is None:
        yield
        return
    stages.say(Repeat(reason=reason, next_at=time.time() + next_attempt_s))
    try:
        yield
    finally:
        stages.say(None)


def waited_for(items: Iterable[R]) -> Iterator[R]:
    """Yield *items*; be at the stage `source` while the next one is awaited."""
    iterator = iter(items)
    while True:
        with stage(SOURCE):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def time_encoder(encoder: Encoder) -> Encoder:
    """Return *encoder*, which from now on is at the stage `encode` whenever it is called.

    It stays the object that it is: sinks look at its attributes, and file bodies call it too.
    """
    opened = encoder.open_body

    def open_body(topic: str) -> FileBody:
        body = opened(topic)
        _replace(body, "write", "finish")
        return body

    encoder.open_body = open_body  # type: ignore[method-assign]
    _replace(encoder, "encode", "encode_resolved", "open_body")
    return encoder


def _replace(component: Encoder | FileBody, *names: str) -> None:
    for name in names:
        setattr(component, name, _timed(getattr(component, name)))


def _timed(call: Callable[P, R]) -> Callable[P, R]:
    @wraps(call)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        with stage(ENCODE):
            return call(*args, **kwargs)

    return timed
