"""A changefeed when everything goes wrong that its run has to deal with: nothing is lost, nothing out of order.

What Spark has to deal with is in tests/spark/test_engine_kills.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import stop_runs
from cdc_testing.scripted import TABLE, CounterRangefeed, CounterReader
from cdc_testing.thread_host import ThreadEngine

from cdc_core.errors import (
    ConfigError,
    ContractError,
    FencedError,
    HistoryLostError,
    RetryableError,
    TerminalError,
    TerminalSinkError,
)
from cdc_core.options import Duration
from cdc_core.slice_reader import SpanMark
from cdc_core.span import Span
from cdc_core.step_planner import Slice
from cdc_core.telemetry.status import Status
from cdc_core.timestamp import Timestamp

STEPS: dict[str, Any] = {"total": 2000, "rows_per_step": 500, "batch_rows": 50}
FAILURES = 4000


class Orders:
    """Before a step, gives the next order, if a step was saved since the one before was obeyed."""

    def __init__(self, engine: ThreadEngine, *orders: tuple[str, str]) -> None:
        self._engine = engine
        self._orders = list(orders)
        self._given: str | None = None
        self._saved = -1

    def __call__(self) -> None:
        script, saved = self._engine.script, self._engine.saved
        if self._given is not None and not script.pending(self._given):
            self._given, self._saved = None, saved
        if self._given is None and self._orders and saved > self._saved:
            self._given, text = self._orders.pop(0)
            script.order(self._given, text)

    @property
    def obeyed(self) -> bool:
        return not self._orders and (self._given is None or not self._engine.script.pending(self._given))


@pytest.fixture(scope="module")
def failures(make_engine: Callable[[], ThreadEngine]) -> ThreadEngine:
    """A run in which every call that may fail did, one after the other, with errors that a retry may cure."""
    engine = make_engine()
    orders = Orders(
        engine,
        ("read-late", "RetryableRangefeedError the source is busy"),
        ("flush", "RetryableSinkError the sink is busy"),
        ("before-report", "OSError the sink lost its answer"),
        ("resolved", "KeyError nobody expected this"),
        ("advance", "ZeroDivisionError nor this"),
        ("release", "RetryableRangefeedError the slot is active"),
    )
    assert engine.run(before_step=orders, **{**STEPS, "total": FAILURES}) == 0
    assert orders.obeyed
    return engine


def test_another_session_begins_when_the_host_fails_again_and_again(make_engine: Callable[[], ThreadEngine]) -> None:
    engine, sessions = make_engine(), list[object]()

    def fail_in_the_first() -> None:
        if engine.host._session not in sessions:
            sessions.append(engine.host._session)
        if engine.saved and len(sessions) == 1:
            raise RuntimeError("an executor lacks its files")

    assert engine.run(before_step=fail_in_the_first, **STEPS) == 0
    assert len(sessions) == 2
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_failures_lose_nothing(failures: ThreadEngine) -> None:
    assert failures.journal.faults(total=FAILURES) == []


def test_each_failure_is_shown_in_one_line_and_retried(failures: ThreadEngine) -> None:
    shown = [status.waiting_for for status in failures.statuses if status.waiting_for]
    assert list(dict.fromkeys(shown)) == [
        "the source is busy",
        "the sink is busy",
        "OSError: the sink lost its answer",
        "KeyError: 'nobody expected this'",
        "ZeroDivisionError: nor this",
    ]


def test_a_failure_is_one_attempt_of_the_run_and_not_of_a_task(failures: ThreadEngine) -> None:
    # all but the release end an attempt; that one is made up for by the next step
    assert failures.journal.epochs <= set(range(1, 7))
    assert max(failures.journal.epochs) == 6
    assert "waiting to retry" in failures.phases  # a short wait may pass between two looks at the phase


def test_a_failed_commit_undoes_nothing_and_saved_steps_are_not_repeated(failures: ThreadEngine) -> None:
    delivered: dict[int, set[int]] = {}
    for _, epoch, _, _, rows in failures.journal.of("rows"):
        delivered.setdefault(epoch, set()).update(n for _, n in rows)
    first = {epoch: min(numbers) for epoch, numbers in delivered.items() if numbers}
    # the resolved mark of epoch 4's last step failed after that step was saved: epoch 5 begins behind it
    assert first[5] == max(delivered[4]) + 1
    # the flush that epoch 3 lost the report of stays, and comes again
    assert first[4] in delivered[3]


def test_resolved_never_moves_back(failures: ThreadEngine) -> None:
    assert failures.journal.resolved == sorted(failures.journal.resolved)


def waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The seconds of each wait, as it was warned of. The status counts them down, when it is logged."""
    warnings = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    return re.findall(r"next attempt in (\S+) s", warnings)


def test_the_wait_that_the_sink_asks_for_is_kept(engine: ThreadEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine.script.order("flush", "RetryableSinkError too many requests retry_after_s=0.5")
    assert engine.run(total=100) == 0
    assert waits(caplog) == ["0.5"]
    assert max(engine.journal.epochs) == 2
    assert engine.journal.faults(total=100) == []


def test_waits_double_up_to_their_limit_while_nothing_is_saved(
    engine: ThreadEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.script.order("advance", "RetryableRangefeedError out of reach", times=4)
    options = {"retry_backoff": Duration(0.1), "max_retry_backoff": Duration(0.4)}
    assert engine.run(total=100, options=options) == 0
    assert waits(caplog) == ["0.1", "0.2", "0.4", "0.4"]


@pytest.mark.parametrize(
    ("order", "text", "error"),
    [
        ("flush", "TerminalSinkError bucket 'x' is gone: create it, or choose another", TerminalSinkError),
        ("read", "HistoryLostError the slot was dropped: start a new changefeed", HistoryLostError),
        ("advance", "ContractError rangefeed 'counter' broke its contract", ContractError),
    ],
)
def test_an_error_that_no_retry_cures_ends_the_run_with_its_sentence(
    order: str, text: str, error: type[Exception], engine: ThreadEngine
) -> None:
    engine.script.order(order, text)
    with pytest.raises(error) as raised:
        engine.run(total=100)
    assert str(raised.value) == text.partition(" ")[2]
    assert engine.saved == 0
    assert "waiting to retry" not in engine.phases


@pytest.mark.parametrize(
    ("order", "text", "owner"),
    [
        ("flush", "TerminalSinkError the password is wrong: correct it", "sink"),
        ("advance", "TerminalRangefeedError the certificate has expired: renew it", "rangefeed"),
        ("read", "ConfigError bucket 'x' is gone: create it", "None"),
    ],
)
def test_what_someone_repairs_elsewhere_is_waited_for_once_something_is_delivered(
    order: str, text: str, owner: str, engine: ThreadEngine
) -> None:
    orders = Orders(engine, ("flush", "OSError out of order"), (order, f"{text} repairable"))
    assert engine.run(before_step=orders, **STEPS) == 0
    assert orders.obeyed
    waits = {status.waiting_for: str(status.waiting_on) for status in engine.statuses}
    assert waits[text.partition(" ")[2]].startswith(owner)
    assert engine.journal.faults(total=STEPS["total"]) == []


@pytest.mark.parametrize("order", ["check", "sink-check", "sink-prepare", "start"])
def test_a_later_run_waits_for_a_repair_before_it_begins(order: str, engine: ThreadEngine) -> None:
    assert engine.run(total=500) == 0
    engine.script.order(order, "ConfigError the password is wrong: correct it repairable", times=2)
    assert engine.run(total=1000) == 0
    assert "the password is wrong: correct it" in [status.waiting_for for status in engine.statuses]
    assert engine.saved >= 1000


@pytest.mark.parametrize("order", ["check", "sink-check", "sink-prepare", "start", "advance", "flush"])
def test_what_someone_repairs_elsewhere_ends_a_first_run_at_once(order: str, engine: ThreadEngine) -> None:
    engine.script.order(order, "ConfigError the password is wrong: correct it repairable")
    with pytest.raises(ConfigError, match="the password is wrong"):
        engine.run(total=100)
    assert "waiting to retry" not in engine.phases


def test_a_repair_is_not_waited_for_for_ever(engine: ThreadEngine) -> None:
    assert engine.run(total=100) == 0
    engine.script.order("flush", "TerminalSinkError the password is wrong: correct it repairable", times=9)
    with pytest.raises(TerminalError, match=r"the same step failed 3 times in .* reason: the password is wrong"):
        engine.run(total=200, options={"max_attempts": 3, "give_up_after": Duration(0.0)})


def test_a_fenced_run_stops_saves_nothing_more_and_is_not_paused(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")

    def watch(_: Status) -> None:
        if engine.script.pending("hold-emit.held"):
            engine.store.changefeeds.begin_attempt("t")
            (engine.directory / "hold-emit").unlink(missing_ok=True)

    with pytest.raises(FencedError, match="changefeed 't': a newer attempt took over"):
        engine.run(once=False, watch=watch, **STEPS, options={"on_error": "pause"})
    assert engine.store.changefeeds.find("t").paused is None
    assert engine.saved == 0
    assert engine.journal.resolved == engine.journal.released == []


def test_a_run_whose_store_is_removed_ends_with_a_sentence(engine: ThreadEngine) -> None:
    removed: list[Path] = []

    def remove() -> None:
        if not removed and engine.saved >= 500:
            removed.extend(engine.directory.glob("progress.sqlite*"))
            for file in removed:
                file.unlink()

    with pytest.raises(TerminalError, match=r"progress store .* was removed or replaced while it was in use"):
        engine.run(before_step=remove, **STEPS)


@pytest.mark.parametrize(
    ("place", "error", "text"),
    [
        ("read", "ZeroDivisionError division of {} by zero", r"ZeroDivisionError: division of \d by zero"),
        ("flush", "RetryableSinkError busy", None),
    ],
)
def test_a_step_that_fails_again_for_the_same_reason_ends_the_run_unless_it_is_an_outage(
    place: str, error: str, text: str | None, engine: ThreadEngine
) -> None:
    given = 0

    def fail() -> None:
        nonlocal given
        if engine.saved >= 500 and given < 6 and not engine.script.pending(place):
            engine.script.order(place, error.format(given))
            given += 1

    options = {"max_attempts": 3, "give_up_after": Duration(0.0)}
    if text is None:
        assert engine.run(before_step=fail, options=options, **STEPS) == 0
        assert max(engine.journal.epochs) == 7
        assert engine.journal.faults(total=STEPS["total"]) == []
    else:
        with pytest.raises(
            TerminalError, match=rf"^the same step failed 3 times in \S+ s for the same reason: {text}$"
        ):
            engine.run(before_step=fail, options=options, **STEPS)


def test_steps_without_rows_between_failures_do_not_prolong_them(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def read(self: CounterReader, slice_: Slice) -> Iterator[SpanMark]:
        """In each attempt, have a step that delivers nothing and resolves nothing, and after it one that fails."""
        first, last, index, _ = slice_.payload
        if index == 0:
            begun.append(first)
            if len(begun) % 2 == 0:
                raise ZeroDivisionError("again")
        yield SpanMark(span=Span(TABLE.name.full), timestamp=Timestamp(last), resolved=False)

    monkeypatch.setattr(CounterReader, "read", read)
    options = {"max_attempts": 3, "give_up_after": Duration(0.0)}
    with pytest.raises(TerminalError, match=r"^the same step failed 3 times in \S+ s for the same reason: Zero"):
        engine.run(options=options, total=20_000, rows_per_step=500)
    assert begun == [0, 500, 500, 1000, 1000, 1500]


def test_a_host_that_dies_is_replaced_and_the_feed_goes_on(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")

    def watch(_: Status) -> None:
        if engine.script.pending("hold-emit.held") and engine.host.is_alive:
            engine.host.die()
            (engine.directory / "hold-emit").unlink()

    assert engine.run(watch=watch, **STEPS) == 0
    assert engine.phases.count("starting Spark") == 2
    assert "Spark's JVM is gone: ConnectionError: the session has ended" in {
        status.waiting_for for status in engine.statuses
    }
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_a_step_that_ends_the_jvm_again_pauses_the_changefeed_and_names_the_memory(engine: ThreadEngine) -> None:
    deaths: list[int] = []

    def die() -> None:
        if engine.saved >= 500:
            deaths.append(engine.saved)
            engine.host.die()

    def watch(status: Status) -> None:
        if status.phase == "paused":
            stop_runs()

    options = {"on_error": "pause", "max_attempts": 2, "give_up_after": Duration(0.0)}
    assert engine.run(once=False, before_step=die, watch=watch, options=options, **STEPS) == 0
    assert deaths == [500, 500]
    reason = engine.store.changefeeds.find("t").paused.reason
    assert re.fullmatch(
        r"the same step failed 2 times in \S+ s because Spark's JVM ended; see \S+/threads\.log for the reason\."
        r" If memory ran out, raise the memory \(of threads\)",
        reason,
    )


def test_a_jvm_that_dies_before_the_feed_began_ends_the_run_with_a_sentence(engine: ThreadEngine) -> None:
    def watch(status: Status) -> None:
        if status.phase == "warming up":
            engine.host.die()

    with pytest.raises(TerminalError, match=r"JVM ended before the changefeed began; see \S+/threads\.log"):
        engine.run(watch=watch, **STEPS)


def test_a_stop_that_ends_the_jvm_too_is_a_stop(engine: ThreadEngine) -> None:
    def watch(status: Status) -> None:
        if status.phase == "warming up":
            stop_runs()
            engine.host.die()

    assert engine.run(once=False, watch=watch, **STEPS) == 0


def test_a_status_that_cannot_be_shown_ends_the_run(engine: ThreadEngine) -> None:
    def watch(status: Status) -> None:
        if status.phase == "running":
            raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError):
        engine.run(watch=watch)


def test_the_source_failing_on_the_driver_is_retried_once_the_feed_ran(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = CounterRangefeed.scan_progress
    failed: list[object] = []

    def fail_once(self: CounterRangefeed, token: Any) -> Any:
        if engine.saved and not failed:
            failed.append(token)
            raise IndexError("the driver's own")
        return asked(self, token)

    monkeypatch.setattr(CounterRangefeed, "scan_progress", fail_once)
    assert engine.run(**STEPS) == 0
    assert {status.waiting_for for status in engine.statuses} == {None, "IndexError: the driver's own"}


def test_a_store_that_is_busy_is_waited_for(engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    load = engine.store.progress.load
    failed: list[str] = []

    def fail_twice(name: str) -> Any:
        progress = load(name)
        if progress is not None and progress.token["n"] >= 500 and len(failed) < 2:
            failed.append(name)
            raise RetryableError("progress store cannot be used: database is locked")
        return progress

    monkeypatch.setattr(engine.store.progress, "load", fail_twice)
    assert engine.run(**STEPS) == 0
    assert len(failed) == 2
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_an_unknown_error_of_the_source_while_setting_up_ends_the_run(engine: ThreadEngine) -> None:
    engine.script.order("start", "IndexError the source's own")
    with pytest.raises(IndexError, match="the source's own"):
        engine.run()


def test_a_failing_check_creates_nothing(engine: ThreadEngine) -> None:
    engine.script.order("check", "ConfigError table 'x' does not exist")
    with pytest.raises(ConfigError, match="table 'x' does not exist"):
        engine.run(tables=("x",))
    assert engine.journal.events == []
    engine.script.order("sink-prepare", "ConfigError topic 'x' cannot be created")
    with pytest.raises(ConfigError, match="topic 'x' cannot be created"):
        engine.run()
    assert engine.journal.events == []
    assert engine.run(total=100) == 0  # with the tables corrected: the typo did not take the name
