"""Mistakes that an engine could make, each of a few lines, to be switched on by name in every process of a run.

They replace parts of `cdc_core.spark` from outside; the engine knows nothing of them. A nemesis that does not find
them would not find their like either.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from cdc_testing import table_bugs
from cdc_testing.nemesis_events import ChangeKey, CreateTable, Rescan
from cdc_testing.scripted import Script
from cdc_testing.table_bugs import Items, Patch, change_reading

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine import attempt as calls
from cdc_core.engine import attempts, step_machine
from cdc_core.engine.aggregator import write_slice as honest_write
from cdc_core.engine.attempt import Attempt
from cdc_core.engine.attempt_config import MaskedError
from cdc_core.engine.packing import END
from cdc_core.engine.planner import Planner
from cdc_core.engine.slices import SliceReport, TaskMessage
from cdc_core.engine.slices import complete_step as honest_completion
from cdc_core.engine.step_actions import Completing, EmitResolved, Release, Save
from cdc_core.engine.step_machine import StepMachine
from cdc_core.frontier import Frontier
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_values import Token
from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, SliceInfo
from cdc_core.slice_reader import SpanMark
from cdc_core.span import Span
from cdc_core.step_planner import StepPlanner
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """`where` says which nemesis runs can show it: sources, sinks, and the faults that it needs."""

    mistake: str
    put: Callable[[Patch], None]
    sources: tuple[str, ...] = ("simulated", "postgres")
    sinks: tuple[str, ...] = ("file", "kafka")
    faults: tuple[str, ...] = ()
    """Points of `nemesis_faults` of which it needs one."""
    killed: bool | None = None
    """Whether a process must die there; else one that fails may do, or must when this is False."""
    needs: type[object] | None = None
    """The kind of event without which it cannot show."""


BUGS: dict[str, Bug] = {}
"""By name."""
_undo: list[Callable[[], None]] = []


def _bug(mistake: str, **where: Any) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Add what the decorated function puts to `BUGS`, by its name."""

    def add(put: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS[put.__name__.strip("_").replace("_", "-")] = Bug(mistake=mistake, put=put, **where)
        return put

    return add


@contextmanager
def installed(name: str) -> Iterator[None]:
    """Let this process have the bug *name* inside the block, none when *name* is empty; afterwards it has none."""
    _take_out()  # a task that was abandoned may not have come to its end yet
    try:
        if name:
            BUGS[name].put(_patch)
        yield
    finally:
        _take_out()


def _take_out() -> None:
    while _undo:
        _undo.pop()()


def _patch(owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    _undo.append(lambda: setattr(owner, name, before))
    setattr(owner, name, value)


class _LateFlush:
    """A sink whose flush waits until the next slice begins."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def begin(self, slice_: SliceInfo) -> None:
        if getattr(self._sink, "owed", False):
            self._sink.flush()
        self._sink.owed = False
        self._sink.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        self._sink.emit(rows)

    def flush(self) -> Flushed:
        self._sink.owed = True
        return Flushed()


@_bug("a slice is reported before the sink has it")
def _report_before_flush(patch: Patch) -> None:
    def write_slice(delivery: Any, *rows: Any, **engine: Any) -> SliceReport | None:
        delivery._sink, delivery._refuses_rows = _LateFlush(delivery._sink), False
        return honest_write(delivery, *rows, **engine)

    patch(calls, "write_slice", write_slice)


@_bug("the greatest timestamp of the frontier is emitted, not the least", sources=("simulated",))
def _resolved_at_the_maximum(patch: Patch) -> None:
    honest = StepMachine.complete

    def complete(self: StepMachine, reports: Any, now: float) -> Iterator[Completing]:
        for action in honest(self, reports, now):
            if isinstance(action, Release) and (mark := self.progress.frontier.latest):
                yield EmitResolved(mark=mark, latest=self.progress.latest)
            if not isinstance(action, EmitResolved):
                yield action

    patch(StepMachine, "complete", complete)


@_bug("the source may forget what progress does not cover yet", faults=("save",))
def _release_before_save(patch: Patch) -> None:
    honest = StepMachine.complete

    def complete(self: StepMachine, reports: Any, now: float) -> Iterator[Completing]:
        for action in honest(self, reports, now):
            if isinstance(action, Save):
                yield Release(token=action.progress.token)
            if not isinstance(action, Release):
                yield action

    patch(StepMachine, "complete", complete)


@_bug("a repeated slice has its rows in another order", faults=("read-late", "emit", "flush"), killed=True)
def _retry_reorders(patch: Patch) -> None:
    def backwards(items: Items) -> Items:
        for item in items:
            yield _taken(item, range(len(item))[::-1]) if isinstance(item, RowBatch) else item

    change_reading(patch, backwards, retries_only=True)


@_bug(
    "a repeated slice goes on behind what was read, not delivered", faults=("read-late", "emit", "flush"), killed=True
)
def _retry_skips(patch: Patch) -> None:
    def without_the_first(items: Items) -> Items:
        first = True
        for item in items:
            if not (first and isinstance(item, RowBatch)):
                yield item
            first = first and not isinstance(item, RowBatch)

    change_reading(patch, without_the_first, retries_only=True)


@_bug("of several versions of a row in a batch only the last goes on")
def _only_the_newest(patch: Patch) -> None:
    def newest(items: Items) -> Items:
        for item in items:
            if isinstance(item, RowBatch):
                last = {str(key): place for place, key in enumerate(item.column("key").to_pylist())}
                yield _taken(item, sorted(last.values()))
            else:
                yield item

    change_reading(patch, newest, retries_only=False)


def _taken(rows: RowBatch, places: Iterable[int]) -> RowBatch:
    return RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(list(places), pa.int64())))


@_bug(
    "progress is saved although a slice of the step failed",
    sources=("simulated",),
    faults=("read", "read-late", "emit", "flush"),
    killed=False,
)
def _saved_without_all_slices(patch: Patch) -> None:
    honest = Attempt.commit

    def commit(self: Attempt, messages: Sequence[TaskMessage | None]) -> None:
        honest(self, [message for message in messages if message is not None and message.reports] or messages)

    patch(Attempt, "commit", commit)
    patch(step_machine, "complete_step", lambda reports: [report for report in reports if report is not None])


@_bug("a slice that could not be read is taken for one without rows", faults=("read", "read-late"), killed=False)
def _unread_slice_counts(patch: Patch) -> None:
    def write_slice(*rows: Any, **engine: Any) -> SliceReport | None:
        try:
            return honest_write(*rows, **engine)
        except MaskedError:
            return None

    patch(calls, "write_slice", write_slice)


@_bug("a resolved mark is emitted while rows below it are on their way")
def _resolved_before_flush(patch: Patch) -> None:
    honest = Attempt.write

    def write(self: Attempt, batches: Iterable[pa.RecordBatch], **how: Any) -> TaskMessage:
        def resolved_early() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.column("kind")[0].as_py() == END:
                    marks: Sequence[SpanMark] = pickle.loads(batch.column("payload")[0].as_py()).marks
                    if marks and all(mark.resolved for mark in marks):
                        with closing(Parts(self.config.feed).open_resolved_sink()) as sink:
                            sink.emit_resolved(min(mark.timestamp for mark in marks))
                yield batch

        return honest(self, resolved_early(), **how)

    patch(Attempt, "write", write)


@_bug(
    "after a crash a run begins where the broken step was to end",
    faults=("read", "read-late", "emit", "flush", "planned", "save"),
)
def _starts_at_the_planned_end(patch: Patch) -> None:
    honest_init, honest_next = Planner.__init__, Planner.next_step
    honest_start = attempts.start_token

    def init(self: Planner, config: Any, planner: StepPlanner) -> None:
        honest_init(self, config, planner)
        self._planned_at = _planned(config.state_dir)  # type: ignore[attr-defined]

    def next_step(self: Planner, start: Any) -> Any:
        end = honest_next(self, start)
        if end != start:
            self._planned_at.write_text(json.dumps(end["token"]))  # type: ignore[attr-defined]
        return end

    def start(feed: ResolvedChangefeed, store: ProgressStore, rangefeed: Rangefeed) -> Token:
        progress, path = store.progress.load(feed.name), _planned(Path(sa.make_url(feed.state).database or "").parent)
        if progress is not None and path.exists():
            store.progress.save(feed.name, feed.epoch, replace(progress, token=json.loads(path.read_text())))
        return honest_start(feed, store, rangefeed)

    patch(Planner, "__init__", init)
    patch(Planner, "next_step", next_step)
    patch(attempts, "start_token", start)


def _planned(state_dir: Path) -> Path:
    return Script(state_dir / "nemesis").directory / "planned-end"


@_bug("the mark of one range moves the frontier of the whole table", sources=("simulated",))
def _whole_table_for_one_range(patch: Patch) -> None:
    def complete_step(reports: Sequence[SliceReport | None]) -> Sequence[SliceReport]:
        return [
            replace(report, marks=tuple(replace(mark, span=Span(mark.span.table)) for mark in report.marks))
            for report in honest_completion(reports)
        ]

    patch(step_machine, "complete_step", complete_step)


@_bug("a new run begins without the timestamps that the last one had reached", sinks=("file",))
def _forgets_how_far_it_was(patch: Patch) -> None:
    honest = attempts.start_token

    def start(feed: ResolvedChangefeed, store: ProgressStore, rangefeed: Rangefeed) -> Token:
        token = honest(feed, store, rangefeed)
        progress = store.progress.load(feed.name)
        assert progress is not None
        spans = [span for span, _ in progress.frontier]
        store.progress.save(feed.name, feed.epoch, replace(progress, latest=Timestamp(), frontier=Frontier(spans)))
        return token

    patch(attempts, "start_token", start)


_bug("rows have the key that their table had first, although it has another one", needs=ChangeKey)(
    table_bugs.keeps_the_first_key
)
_bug("a table whose key changed is not read again: its rows are taken for repeats", needs=ChangeKey)(
    table_bugs.scans_once
)
_bug("a rescan counts as begun before the step that holds it is saved", faults=("planned", "save"), needs=Rescan)(
    table_bugs.rescan_begun_before_saved
)
_bug(
    "the rows that a table has when it joins by a pattern are not delivered",
    sources=("postgres",),
    sinks=("file",),
    needs=CreateTable,
)(table_bugs.joins_without_rows)
