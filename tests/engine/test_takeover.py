"""A run that takes over from a node that did not end cleanly."""

from __future__ import annotations

import time

import pytest
from cdc_testing.engine import counter_feed, stop_runs
from cdc_testing.scripted import TABLE, CounterRangefeed, JournalDestination
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Move, ScanProgress, Span
from cdc_core.frontier import Frontier
from cdc_core.store.progress import Progress
from cdc_core.store.saved_progress import save_move
from cdc_core.telemetry.status import Status

WAITING = "waiting for calls of the earlier node to end"


def test_a_scan_begins_when_calls_of_the_earlier_node_have_ended(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterRangefeed, "scan_progress", lambda *_: ScanProgress(done=0, total=1, unit="chunks"))
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 0.3)
    first = time.monotonic()

    def watch(status: Status) -> None:
        if status.phase == WAITING:
            assert engine.store.progress.load("t") is not None, "the wait comes after the start token"
            assert engine.journal.of("rows") == []
        elif status.phase == "running" and engine.phases.count("running") == 1:
            assert time.monotonic() - first > 0.3

    assert engine.run(total=100, after_unclean=True, watch=watch) == 0
    assert engine.phases.index(WAITING) < engine.phases.index("running")
    assert engine.journal.numbers() == set(range(1, 101))


def test_the_first_run_after_a_move_waits_too_and_can_be_stopped(engine: ThreadEngine) -> None:
    feed, store = counter_feed(engine.directory), engine.store
    store.changefeeds.register("t", feed.definition())
    epoch, token = store.changefeeds.begin_attempt("t"), {"n": 50}
    store.progress.save("t", epoch, Progress(token=token, frontier=Frontier([Span(TABLE.name.full)])))
    with store.transaction() as connection:
        move = Move(token={"n": 60}, before="50", after="60", forward=True, back=False)
        save_move(connection, "t", epoch, move, saved=token)

    def watch(status: Status) -> None:
        if status.phase == WAITING:
            stop_runs()

    assert engine.run(after_unclean=True, watch=watch) == 0
    assert WAITING in engine.phases
    assert "running" not in engine.phases
    assert store.steps.was_moved("t"), "the next run waits again"
