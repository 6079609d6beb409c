"""How runs of a changefeed end, and what the next one finds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.engine import abandon_runs, stop_runs
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.engine.supervisor import Supervisor
from cdc_core.spark.host import SparkHost
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status

STEPS: dict[str, Any] = {"total": 2000, "rows_per_step": 500}
SCAN: dict[str, Any] = {**STEPS, "options": {"initial_scan": "only", "resolved": None}}


def delivered(engine: ThreadEngine) -> list[int]:
    return [n for event in engine.journal.of("rows") for _, n in event[4]]


def test_a_stop_lets_the_running_step_end_and_be_saved(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")

    def watch(status: Status) -> None:
        if status.phase == "running" and engine.script.pending("hold-emit.held"):
            stop_runs()
        if status.phase == "stopping":
            (engine.directory / "hold-emit").unlink(missing_ok=True)

    assert engine.run(once=False, watch=watch, **STEPS) == 0
    assert engine.saved == 500
    assert sorted(delivered(engine)) == list(range(1, 501))  # and no step was planned any more
    assert engine.journal.resolved[-1] == 500
    assert engine.journal.released == [500]

    assert engine.run(**STEPS) == 0
    assert sorted(delivered(engine)) == list(range(1, 2001))  # nothing is repeated after a clean stop
    assert engine.journal.faults(total=2000) == []


def test_a_run_uses_executors_that_come_later_and_repeats_nothing(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")
    phases = [""]

    def watch(status: Status) -> None:
        if engine.script.pending("hold-emit.held"):
            engine.host.slots = 4
        if status.phase == "stopping":
            (engine.directory / "hold-emit").unlink(missing_ok=True)
        if status.phase != phases[-1]:
            phases.append(status.phase)

    assert engine.run(watch=watch, **STEPS) == 0
    assert phases.count("running") == 2
    assert sorted(delivered(engine)) == list(range(1, 2001))
    assert engine.journal.faults(total=2000) == []


def test_a_run_that_is_abandoned_leaves_the_running_step_to_the_next_one(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")

    def watch(status: Status) -> None:
        if engine.script.pending("hold-emit.held"):
            stop_runs()
        if status.phase == "stopping":
            abandon_runs()

    assert engine.run(once=False, watch=watch, **STEPS) == 130
    assert engine.saved == 0
    (engine.directory / "hold-emit").unlink()
    assert engine.run(**STEPS) == 0
    assert engine.journal.faults(total=2000) == []


def test_a_step_that_does_not_end_is_given_up_and_that_is_no_success(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_core.engine.attempts._STOP_LIMIT_S", 0.2)
    engine.script.order("hold-emit")

    def watch(status: Status) -> None:
        if status.phase == "running" and engine.script.pending("hold-emit.held"):
            stop_runs()

    assert engine.run(once=False, watch=watch, **STEPS) == 1
    assert "the running step took too long and was abandoned" in caplog.text
    assert engine.saved == 0
    (engine.directory / "hold-emit").unlink()


def test_a_stop_while_it_waits_to_retry_ends_the_run(engine: ThreadEngine) -> None:
    engine.script.order("advance", "RetryableRangefeedError out of reach retry_after_s=600")

    def watch(status: Status) -> None:
        if status.phase == "waiting to retry":
            stop_runs()

    assert engine.run(once=False, watch=watch) == 0
    assert engine.statuses[-1].waiting_for == "out of reach"


def test_a_stop_while_it_starts_begins_nothing(engine: ThreadEngine) -> None:
    def watch(status: Status) -> None:
        if status.phase == "starting Spark":
            stop_runs()

    assert engine.run(once=False, watch=watch) == 0
    assert engine.store.progress.load("t") is None
    assert engine.journal.events == []


def test_a_run_that_only_scans_ends_with_the_scan_and_leaves_nothing_at_the_source(engine: ThreadEngine) -> None:
    asked: list[int] = []
    late = threading.Event()

    def ask() -> None:
        asked.append(engine.saved)
        if asked[-2:] == [500, 500]:  # the planner was asked for more when the scan was done, and has answered
            late.set()

    def watch(status: Status) -> None:
        if status.phase == "running":
            assert late.wait(60)  # a driver that notices late must not let more be delivered

    assert engine.run(once=False, before_step=ask, watch=watch, **SCAN) == 0
    assert sorted(delivered(engine)) == list(range(1, 501))
    assert engine.journal.resolved == []
    assert engine.journal.events[-1] == ["drop"]


def test_a_scan_that_was_delivered_is_not_begun_again(engine: ThreadEngine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    engine.script.order("drop", "RetryableRangefeedError the slot is in use")
    assert engine.run(once=False, **SCAN) == 0
    (warning,) = [record.getMessage() for record in caplog.records if "still retains history" in record.getMessage()]
    assert "the slot is in use; run the changefeed once more" in warning
    before = engine.journal.events
    assert engine.journal.of("drop") == []

    engine.script.order("start", "HistoryLostError a run that has nothing to do must not ask for it")
    engine.script.order("check", "ConfigError nor for anything else")
    assert engine.run(once=False, **SCAN) == 0
    assert engine.journal.events == [*before, ["drop"]]
    assert "to scan again, choose another name" in caplog.text
    assert engine.run(once=True, **SCAN) == 0
    assert engine.journal.events == [*before, ["drop"], ["drop"]]


def test_a_changefeed_that_goes_on_keeps_its_history_when_it_is_stopped(engine: ThreadEngine) -> None:
    assert engine.run(total=100) == 0
    assert engine.journal.of("drop") == []


def test_what_is_complete_is_resolved_even_if_the_last_mark_failed(engine: ThreadEngine) -> None:
    engine.script.order("resolved", "RetryableSinkError busy")
    assert engine.run(total=100) == 0
    assert engine.journal.resolved[-1] == 101
    assert engine.journal.faults(total=100) == []


class SlowlyClosed(ProgressStore):
    """A store that closes when it may."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.closing, self.may_close = threading.Event(), threading.Event()

    def close(self) -> None:
        if threading.current_thread().name == "changefeed orders":
            self.closing.set()
            self.may_close.wait()
        super().close()


def test_who_sees_the_outcome_has_the_store_for_himself(tmp_path: Path) -> None:
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    changefeed = Changefeed(name="orders", source="paper://desk/shop", tables=("orders",), sink="shelf://room")
    store = SlowlyClosed(store_url(tmp_path))
    spark = SparkHost("orders", {}, state_dir=tmp_path)
    supervisor = Supervisor(resolve(changefeed, plugins), store=store, state_dir=tmp_path, host=spark)
    (tmp_path / "orders.lock").mkdir()  # fails the run at once
    supervisor.start()
    store.closing.wait()
    assert supervisor.outcome is None
    store.may_close.set()
    assert supervisor.wait() is not None
    store.close()
