"""What a sink says inside a call: who hears it, and that a newer attempt ends what the call repeats."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core import Flushed, ResolvedSink, RowBatch, Sink, SinkContext, Timestamp, TracedRow
from cdc_core.config.parts import Parts
from cdc_core.engine.fencing import EpochCheck, FencedSink
from cdc_core.engine.resolved_marks import ResolvedMarks
from cdc_core.engine.start_position import register
from cdc_core.errors import FencedError
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.stages import SINK, Stages


class Repeating(Sink):
    """Repeats something for ever inside `flush`; a newer attempt begins at the third time."""

    store: ProgressStore
    times = 0

    def emit(self, rows: RowBatch) -> None:
        """Wait once, in a thread of its own as well."""

        def wait() -> None:
            with self.context.repeating("busy", next_attempt_s=60.0):
                for _, row in self.context.traced_rows(rows):
                    row.placed(thread=threading.current_thread().name)

        wait()
        thread = threading.Thread(target=wait, name="uploads")
        thread.start()
        thread.join()

    def flush(self) -> Flushed:
        while True:
            self.times += 1
            if self.times == 3:
                self.store.changefeeds.begin_attempt("t")
            with self.context.repeating("busy", next_attempt_s=0.0):
                pass


class AllRows:
    def __init__(self) -> None:
        self.row = TracedRow()

    def rows_in(self, _: RowBatch) -> list[tuple[int, TracedRow]]:
        return [(0, self.row)]

    def reached(self, stage: str, rows: RowBatch) -> None:
        pass


@pytest.fixture
def context(tmp_path: Path) -> SinkContext:
    return Parts(counter_feed(tmp_path)).sink_context()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    with closing(ProgressStore(store_url(tmp_path))) as store:
        register(counter_feed(tmp_path), store)
        yield store


NO_ROWS: Any = None
NO_ENCODER: Any = None


def reason(stages: Stages) -> str | None:
    return None if stages.repeat is None else stages.repeat.reason


def test_a_call_that_repeats_something_ends_when_a_newer_attempt_begins(
    store: ProgressStore, context: SinkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.fencing.CHECK_VALID_S", 0.0)
    sink = Repeating(context)
    sink.store = store
    check = EpochCheck(store, name="t", epoch=store.changefeeds.begin_attempt("t"))
    with pytest.raises(FencedError):
        FencedSink(sink, check.require_newest).flush()
    assert sink.times == 3
    with context.repeating("outside of the call nothing is asked", next_attempt_s=0.0):
        pass


def test_the_task_that_makes_a_call_hears_of_it_and_no_other_one(context: SinkContext) -> None:
    sinks = [Repeating(dataclasses.replace(context, encoder=context.encoder)), Repeating(context)]
    said: list[list[str | None]] = [[], []]
    for number in range(2):
        stages = Stages(SINK, changed=lambda stages, n=number: said[n].append(reason(stages)))  # type: ignore[misc]
        stages.trace = trace = AllRows()
        FencedSink(sinks[number], lambda: None, stages).emit(NO_ROWS)
        sinks[number].emit(NO_ROWS)  # of which nobody wants to know
        assert trace.row.place == {"thread": "uploads"}
    assert said == [["busy", None] * 2] * 2
    assert list(context.traced_rows(NO_ROWS)) == []


def test_a_context_that_went_to_another_process_says_nothing_to_this_one(context: SinkContext) -> None:
    stages = Stages(SINK, changed=lambda _: pytest.fail("nothing is said here"))
    with context.calls.observed_by(stages):
        there = pickle.loads(pickle.dumps(dataclasses.replace(context, encoder=NO_ENCODER)))
        with there.repeating("busy", next_attempt_s=1.0):
            assert stages.repeat is None
    assert there == dataclasses.replace(context, encoder=NO_ENCODER)


class Waiting(ResolvedSink):
    def emit_resolved(self, timestamp: Timestamp) -> None:
        with self.context.repeating(f"no answer to {timestamp.wall}", next_attempt_s=1.0):
            pass


class WithoutContext(ResolvedSink):
    def __init__(self, context: SinkContext) -> None:
        self.own, self.emitted = context, Timestamp()

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self.emitted = timestamp


def test_the_coordinator_hears_what_its_sink_repeats(store: ProgressStore, context: SinkContext) -> None:
    said: list[str | None] = []
    stages = Stages(SINK, changed=lambda stages: said.append(reason(stages)))
    epoch = store.changefeeds.begin_attempt("t")
    for sink in (Waiting(context), own := WithoutContext(context)):
        marks = ResolvedMarks(sink, store, name="t", epoch=epoch, records=False)
        marks.emit(Timestamp(7), latest=Timestamp(7), stages=stages)
        marks.emit(Timestamp(8), latest=Timestamp(8))
    assert said == ["no answer to 7", None]
    assert own.emitted == Timestamp(8)
