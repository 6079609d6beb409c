"""What the status of a run says about why it is where it is."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from cdc_testing.engine import stop_runs
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Timestamp
from cdc_core.engine.run_status import RunStatus
from cdc_core.store.reports import Report, reports
from cdc_core.telemetry import metrics
from cdc_core.telemetry.status import Retrying, Status, status_line

STEPS: dict[str, Any] = {"total": 2000, "rows_per_step": 500}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that hangs is shown soon."""
    monkeypatch.setattr("cdc_core.engine.status_sampler._STUCK_S", 0.3)


def test_a_sink_that_stalls_is_named_and_so_is_an_idle_feed(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.status_sampler._SILENT_S", 1.0)
    engine.script.order("hold-emit")
    stalled: list[Status] = []
    idle: list[Status] = []

    def watch(status: Status) -> None:
        if status.waiting_on == "sink 'journal'" and status.waiting_on_s > 1:
            stalled.append(status)
            (engine.directory / "hold-emit").unlink(missing_ok=True)
        if status.phase == "running" and status.waiting_on == "changes" and status.rows == STEPS["total"]:
            idle.append(status)
            stop_runs()

    assert engine.run(once=False, watch=watch, **STEPS) == 0
    assert " rows" not in status_line(stalled[0])
    assert re.search(", waiting for sink 'journal' for [0-9]+ s$", status_line(stalled[0]))
    assert max(stalled[0].shares, key=stalled[0].shares.__getitem__) == "sink"
    assert idle
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_a_step_that_keeps_a_stop_waiting_is_named(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")
    seen: list[str] = []

    def watch(status: Status) -> None:
        if status.phase == "running" and engine.script.pending("hold-emit.held"):
            stop_runs()
        if status.phase == "stopping" and status.waiting_on is not None:
            seen.append(status.waiting_on)
            (engine.directory / "hold-emit").unlink(missing_ok=True)

    assert engine.run(once=False, watch=watch, **STEPS) == 0
    assert seen[0] == "sink 'journal'"


def test_where_the_time_goes_is_measured(engine: ThreadEngine) -> None:
    seen: list[Status] = []
    assert engine.run(watch=seen.append, total=20_000, rows_per_step=5000, batch_rows=500) == 0
    shares = [status.shares for status in seen if status.shares and status.rows]
    assert shares
    assert set(shares[-1]) == {"source", "encode", "sink"}
    assert abs(sum(shares[-1].values()) - 1) < 1e-6
    counters = engine.store.progress.load("t").counters
    assert counters["seconds.sink"] > 0
    assert counters["seconds.source"] > 0
    tally = engine.store.progress.load("t").tally
    [steps], [saves], [batches] = (
        tuple(tally.samples(metric))
        for metric in (metrics.STEP_SECONDS, metrics.CHECKPOINT_SECONDS, metrics.BATCH_ROWS)
    )
    assert sum(steps.counts) == tally.value(metrics.STEPS) >= 4
    assert sum(saves.counts) == tally.value(metrics.STEPS) - 1  # the time of each save is saved by the next one
    assert batches.value == tally.value(metrics.ROWS) == 20_000
    assert len(engine.store.moments.of("t")) >= 1


def test_a_source_that_is_down_is_named_with_its_error_and_the_next_attempt(engine: ThreadEngine) -> None:
    engine.script.order("advance", "RetryableRangefeedError no route to db:5432 retry_after_s=0.5")
    assert engine.run(**STEPS) == 0
    waiting = next(status for status in engine.statuses if status.phase == "waiting to retry")
    assert re.search("retry, rangefeed 'counter': no route to db:5432; next attempt in [01] s$", status_line(waiting))
    assert engine.statuses[-1].waiting_for is None
    assert time.time() - 60 < waiting.source_silent_since < time.time()
    assert engine.statuses[-1].source_silent_since is None
    assert engine.statuses[-1].retries == {"source": 1}
    engine.script.order("advance", "RetryableRangefeedError no route to db:5432 retry_after_s=0.5")
    assert engine.run(**{**STEPS, "total": 3000}) == 0
    assert engine.statuses[-1].retries == {"source": 2}


def test_a_sink_that_is_down_is_named_with_its_error_and_the_next_attempt(engine: ThreadEngine) -> None:
    engine.script.order("flush", "RetryableSinkError the server says 503 retry_after_s=0.5")
    assert engine.run(**STEPS) == 0
    waiting = next(status for status in engine.statuses if status.phase == "waiting to retry")
    assert re.search("retry, sink 'journal': the server says 503; next attempt in [01] s$", status_line(waiting))


def saved(engine: ThreadEngine) -> Report:
    """Return what others see of the run."""
    [found] = reports(engine.store)
    return found


def test_a_changefeed_that_fails_says_so_until_a_step_is_saved_again(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.run_status._MIN_S", 0.0)
    engine.script.order("advance", "RetryableRangefeedError no route to db:5432", times=3)
    before: list[Report] = []
    after: list[Report] = []

    def watch(status: Status) -> None:
        if status.retries:
            (before if not status.rows else after).append(saved(engine))

    assert engine.run(watch=watch, **STEPS) == 0
    assert {found.state for found in before} == {"retrying"}
    found = [each.retrying for each in before if each.retrying is not None]
    assert {each.error for each in found} == {"no route to db:5432"}
    assert len({each.since for each in found}) == 1
    failures = [each.failures for each in found]
    assert failures == sorted(failures)
    assert set(failures) == {1, 2, 3}
    assert {each.state for each in after} == {"running"}
    last = saved(engine)
    assert (last.state, last.retrying) == ("complete", None)


def test_a_step_that_is_repeated_by_its_sink_is_retried(engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.engine.run_status._MIN_S", 0.0)
    engine.script.order("repeat-emit", "503 of the server")
    seen: list[Report] = []

    def watch(status: Status) -> None:
        if status.waiting_for is not None:
            seen.append(saved(engine))
            (engine.directory / "repeat-emit").unlink(missing_ok=True)

    assert engine.run(watch=watch, **STEPS) == 0
    [first, *_] = seen
    assert first.state == "retrying"
    assert first.retrying is not None
    assert (first.retrying.error, first.retrying.failures) == ("503 of the server", 1)
    assert engine.statuses[-1].retrying is None


def test_what_a_run_that_died_was_retrying_the_next_one_retries(engine: ThreadEngine) -> None:
    assert engine.run(**STEPS) == 0
    epoch = engine.store.changefeeds.begin_attempt("t")
    died = Retrying(error="no route to db:5432", since=datetime(2026, 1, 31, tzinfo=UTC), failures=7)
    for phase, kept in (("running", died), ("stopped", None)):
        engine.store.statuses.save("t", epoch, {"phase": phase, "retrying": died.to_json()})
        status = RunStatus("t", engine.store, log_name="", watch=None)
        status.continue_from(Timestamp())
        assert status.now.retrying == kept
    status.count_retry("sink", "503")
    status.count_retry("sink", "504")
    assert status.now.retrying is not None
    assert (status.now.retrying.error, status.now.retrying.failures) == ("504", 2)


def test_what_the_source_says_is_shown_and_logged_when_it_begins_and_ends(
    engine: ThreadEngine, caplog: pytest.LogCaptureFixture
) -> None:
    order = engine.directory / "notice-of-the-source"
    order.write_text("process 7 holds the log")
    kept: list[str | None] = []

    def watch(status: Status) -> None:
        if status.notice is not None and order.exists():
            kept.append(status.notice)
            record = engine.store.statuses.load("t")
            if record is not None and record.values["notice"] == status.notice:
                order.unlink()
        elif kept and status.notice is None:
            stop_runs()

    with caplog.at_level("INFO", logger="cdc_core.engine.driver_log"):
        assert engine.run(once=False, watch=watch, total=10_000_000, rows_per_step=100) == 0
    assert [record.getMessage() for record in caplog.records if record.name == "cdc_core.engine.driver_log"] == [
        "changefeed 't': rangefeed 'counter': process 7 holds the log",
        "changefeed 't': rangefeed 'counter': no longer: process 7 holds the log",
    ]
    assert any("the source says: process 7 holds the log" in status_line(status) for status in engine.statuses)
