"""Parts of a source and of a sink, and a progress store, that die or fail at chosen points, around the real ones.

Orders are files in a directory that all processes of a run know, each obeyed once, see `cdc_testing.scripted.Script`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_testing.scripted import Script

from cdc_core import (
    Covered,
    Flushed,
    Rescan,
    ResolvedSink,
    RowBatch,
    Sink,
    Slice,
    SliceInfo,
    SliceReader,
    SourceHistory,
    SpanMark,
    StepLimit,
    StepPlanner,
    Timestamp,
    Token,
)
from cdc_core.store.database import Database
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.store.saved_progress import SavedProgress

POINTS = {
    "advance": "planner, before a step is planned",
    "planned": "planner, after a step was planned",
    "read": "executor, before the rows of a slice",
    "read-late": "executor, after the first batch of a slice",
    "emit": "executor, before rows go to the sink",
    "flush": "executor, after the rows and before the barrier",
    "flushed": "executor, after the barrier and before the report",
    "save": "coordinator, before progress is saved",
    "saved": "coordinator, after progress was saved",
    "resolve": "coordinator, before a resolved mark",
    "resolved": "coordinator, after a resolved mark",
    "release": "coordinator, before history is released",
    "released": "coordinator, after history was released",
}
_OF_SOURCE = ("advance", "planned", "read", "read-late", "release", "released")


def order(control: Path, point: str, *, killed: bool, threads: bool) -> None:
    """Let the next process, or thread, that comes to *point* die, or raise an error that a retry cures."""
    kind = "RetryableRangefeedError" if point in _OF_SOURCE else "RetryableSinkError"
    text = ("die" if threads else "kill") if killed else f"{kind} made-up trouble at '{point}'"
    Script(control).order(point, text)


def pending(control: Path, point: str) -> bool:
    """Return whether nobody has obeyed the order for *point* yet."""
    return Script(control).pending(point)


def withdraw(control: Path, point: str) -> bool:
    """Take an order back; return whether it was still there."""
    return Script(control).once(point) is not None


class FaultyPlanner(StepPlanner):
    def __init__(self, inner: StepPlanner, control: Path) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._script = Script(control)

    def now(self) -> Timestamp:
        return self._inner.now()

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        self._script.raise_once("advance")
        return self._inner.advance(start, after=after, limit=limit)

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        found = self._inner.slices(start, end, after=after)
        self._script.raise_once("planned")
        return found

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        found = self._inner.repeat(start, end, after=after)
        self._script.raise_once("planned")
        return found

    def check_rescan(self, rescan: Rescan) -> None:
        self._inner.check_rescan(rescan)

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        return self._inner.scan_again(start, rescans)

    def close(self) -> None:
        self._inner.close()


class FaultyReader(SliceReader):
    def __init__(self, inner: SliceReader, control: Path) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._script = Script(control)

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        self._script.raise_once("read")
        for item in self._inner.read(slice_):
            yield item
            if isinstance(item, RowBatch):
                self._script.raise_once("read-late")

    def close(self) -> None:
        self._inner.close()


class FaultyHistory(SourceHistory):
    def __init__(self, inner: SourceHistory, control: Path) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._script = Script(control)

    def release(self, token: Token) -> None:
        self._script.raise_once("release")
        self._inner.release(token)
        self._script.raise_once("released")

    def metrics(self) -> Mapping[str, float]:
        return self._inner.metrics()

    def close(self) -> None:
        self._inner.close()


class FaultySink(Sink):
    def __init__(self, inner: Sink, control: Path) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._script = Script(control)
        self._rows = 0

    def begin(self, slice_: SliceInfo) -> None:
        self._rows = 0
        self._inner.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        self._script.raise_once("emit")
        self._rows += len(rows)
        self._inner.emit(rows)

    def flush(self) -> Flushed:
        """A slice without rows gives no fault: nothing of it could be lost."""
        if self._rows:
            self._script.raise_once("flush")
        flushed = self._inner.flush()
        if self._rows:
            self._script.raise_once("flushed")
        return flushed

    def close(self) -> None:
        self._inner.close()


class FaultyResolvedSink(ResolvedSink):
    def __init__(self, inner: ResolvedSink, control: Path) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._script = Script(control)

    def record(self, covered: Covered) -> None:
        self._inner.record(covered)

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self._script.raise_once("resolve")
        self._inner.emit_resolved(timestamp)
        self._script.raise_once("resolved")

    def close(self) -> None:
        self._inner.close()


class FaultyStore(ProgressStore):
    """For the coordinator."""

    def __init__(self, url: str, control: Path, *, alone: bool) -> None:
        super().__init__(url, alone=alone)
        self.progress = _FaultyProgress(self._database, Script(control))


class _FaultyProgress(SavedProgress):
    def __init__(self, database: Database, script: Script) -> None:
        super().__init__(database)
        self._script = script
        self._rows = 0.0

    def save(self, name: str, epoch: int, progress: Progress, **more: Any) -> int:
        """A step without rows gives no fault: nothing of it could be lost."""
        rows = progress.counters.get("rows", 0)
        if rows != self._rows:
            self._script.raise_once("save")
        refused = super().save(name, epoch, progress, **more)
        if rows != self._rows:
            self._script.raise_once("saved")
        self._rows = rows
        return refused
