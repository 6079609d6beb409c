"""How long an attempt waits for what earlier ones may still be doing, also those of a node that ended uncleanly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import counter_feed, stop_runs
from cdc_testing.scripted import TABLE, CounterRangefeed, JournalDestination
from cdc_testing.thread_host import ThreadEngine, ThreadHost

from cdc_core import Move, ScanProgress, Span
from cdc_core.engine import fencing
from cdc_core.engine.fencing import CHECK_VALID_S, at_work
from cdc_core.engine.run_control import RunControl, Stopped
from cdc_core.engine.takeover import PreviousAttempts
from cdc_core.frontier import Frontier
from cdc_core.store.progress import Progress
from cdc_core.store.saved_progress import save_move
from cdc_core.telemetry.status import Status

CALLS = "waiting for calls of the earlier node to end"


class Rig:
    def __init__(self, directory: Path, *, after_unclean: bool) -> None:
        self.feed = counter_feed(directory)
        self.control = RunControl()
        self.phases: list[str] = []
        self.previous = PreviousAttempts(
            "t", directory, after_unclean=after_unclean, say=self.say, control=self.control
        )

    def say(self, **changes: Any) -> None:
        self.phases.append(changes["phase"])


@pytest.mark.parametrize(
    ("after_unclean", "scans", "moved"), [(False, True, False), (False, False, True), (True, False, False)]
)
def test_only_a_scan_or_a_move_after_another_node_waits(
    tmp_path: Path, *, after_unclean: bool, scans: bool, moved: bool
) -> None:
    rig = Rig(tmp_path, after_unclean=after_unclean)
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert rig.phases == []


@pytest.mark.parametrize(("scans", "moved"), [(True, False), (False, True)])
def test_the_time_counts_from_the_first_attempt_that_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, scans: bool, moved: bool
) -> None:
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 0.3)
    rig = Rig(tmp_path, after_unclean=True)
    began = time.monotonic()
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert time.monotonic() - began >= 0.3 + CHECK_VALID_S
    assert set(rig.phases) == {CALLS}
    rig.phases.clear()
    rig.previous.fenced()
    rig.previous.await_calls(rig.feed, scans=scans, moved=moved)
    assert rig.phases == []


@pytest.mark.parametrize(
    ("is_local", "order", "waits"), [(False, "", True), (True, "", False), (False, "flush", False)]
)
def test_a_scan_waits_after_an_attempt_whose_tasks_may_be_alive_on_other_hosts(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch, *, is_local: bool, order: str, waits: bool
) -> None:
    monkeypatch.setattr(ThreadHost, "is_local", is_local)
    monkeypatch.setattr(CounterRangefeed, "scan_progress", lambda *_: ScanProgress(done=0, total=1, unit="chunks"))
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 0.3)
    failed: list[bool] = []

    def fail_once() -> None:
        if not failed:
            failed.append(True)
            if order:  # a task tells of it when all have ended
                engine.script.order(order, "RetryableSinkError busy")
            else:
                engine.host.die()

    assert engine.run(total=100, before_step=fail_once) == 0
    assert "waiting to retry" in engine.phases
    assert (CALLS in engine.phases) is waits
    assert engine.journal.numbers() == set(range(1, 101))


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    rig = Rig(tmp_path, after_unclean=True)
    rig.previous.fenced()
    rig.control.stop.set()
    with pytest.raises(Stopped):
        rig.previous.await_calls(rig.feed, scans=True, moved=False)
    assert rig.phases == [CALLS]


def test_a_scan_begins_when_calls_of_the_earlier_node_have_ended(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterRangefeed, "scan_progress", lambda *_: ScanProgress(done=0, total=1, unit="chunks"))
    monkeypatch.setattr(JournalDestination, "longest_call_s", lambda _: 0.3)
    first = time.monotonic()

    def watch(status: Status) -> None:
        if status.phase == CALLS:
            assert engine.store.progress.load("t") is not None, "the wait comes after the start token"
            assert engine.journal.of("rows") == []
        elif status.phase == "running" and engine.phases.count("running") == 1:
            assert time.monotonic() - first > 0.3

    assert engine.run(total=100, after_unclean=True, watch=watch) == 0
    assert engine.phases.index(CALLS) < engine.phases.index("running")
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
        if status.phase == CALLS:
            stop_runs()

    assert engine.run(after_unclean=True, watch=watch) == 0
    assert CALLS in engine.phases
    assert "running" not in engine.phases
    assert store.planned_steps.was_moved("t"), "the next run waits again"


def test_a_run_waits_until_the_tasks_of_an_earlier_one_have_ended(engine: ThreadEngine) -> None:
    lock, old = engine.directory / "t.tasks.lock", engine.directory / "t.run" / "0"
    task = at_work(lock, run_dir=old)
    task.__enter__()

    def watch(status: Status) -> None:
        assert engine.store.progress.load("t") is None or ended
        if engine.phases.count("waiting for tasks of an earlier attempt to end") and not ended:
            ended.append(True)
            task.__exit__(None, None, None)

    ended: list[bool] = []
    assert engine.run(total=100, watch=watch) == 0
    assert ended


def test_tasks_that_do_not_end_are_named_and_waited_for(engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "_IDLE_LIMIT_S", 0.2)
    lock = engine.directory / "t.tasks.lock"
    task = at_work(lock, run_dir=engine.directory / "t.run" / "0")
    task.__enter__()
    seen: list[str] = []

    def watch(status: Status) -> None:
        if status.waiting_for is not None and not seen:
            seen.append(status.waiting_for)
            task.__exit__(None, None, None)

    assert engine.run(total=100, watch=watch) == 0
    assert len(seen) == 1
    assert f"hold {lock}" in seen[0]


def test_a_run_that_waits_for_tasks_can_be_stopped(engine: ThreadEngine) -> None:
    def watch(status: Status) -> None:
        if status.phase.startswith("waiting for tasks"):
            stop_runs()

    with at_work(engine.directory / "t.tasks.lock", run_dir=engine.directory / "t.run" / "0"):
        assert engine.run(watch=watch) == 0
    assert "running" not in engine.phases
