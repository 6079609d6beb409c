"""on_error=pause: the changefeed waits for a person, and nothing is lost by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cdc_testing.engine import resume_runs, stop_runs
from cdc_testing.thread_host import ThreadEngine

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.engine.run_control import Pausing, RunControl
from cdc_core.errors import FencedError, RetryableError, TerminalError, TerminalSinkError
from cdc_core.store.job_values import JobRecord
from cdc_core.telemetry.status import Status

STEPS: dict[str, Any] = {"total": 2000, "rows_per_step": 500}
PAUSE: dict[str, Any] = {"options": {"on_error": "pause"}}
POISON = "TerminalSinkError row 7 of table counter is refused: correct it"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits looks often."""
    for module in ("run_control", "control_requests"):
        monkeypatch.setattr(f"cdc_core.engine.{module}._POLL_S", 0.05)


@dataclass
class Person:
    """Looks at the status, and once the changefeed is paused does *act*, once a pause."""

    act: Callable[[Status], None]
    pauses: list[Status] = field(default_factory=list)
    was: str = ""

    def __call__(self, status: Status) -> None:
        if status.phase == "paused" != self.was:
            self.pauses.append(status)
            self.act(status)
        self.was = status.phase


class PauseRequest:
    """Asks the store for a pause in the middle of the first step, which ends when the run has heard of it."""

    def __init__(self, engine: ThreadEngine) -> None:
        self.asked: list[JobRecord] = []
        self._engine = engine
        engine.script.order("hold-emit")

    def __call__(self, status: Status) -> None:
        if not self.asked and self._engine.script.pending("hold-emit.held"):
            self.asked.append(Changefeeds(self._engine.store).pause("t", "lunch"))
        if status.phase == "stopping":
            (self._engine.directory / "hold-emit").unlink(missing_ok=True)


def resume(engine: ThreadEngine) -> Person:
    return Person(lambda _: engine.store.claims.resume_run("t"))


def stop(status: Status) -> None:
    if status.phase != "stopping":  # a second signal would abandon the step
        stop_runs()


def reason(engine: ThreadEngine) -> str | None:
    paused = engine.store.changefeeds.find("t").paused
    return None if paused is None else paused.reason


def test_a_paused_changefeed_goes_on_from_what_was_saved_when_it_is_resumed(
    engine: ThreadEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cdc_core")
    poisoned: list[int] = []
    pauses: list[Status] = []
    host_was_alive: list[bool] = []

    def poison() -> None:
        if engine.saved >= 500 and not poisoned:
            engine.script.order("flush", POISON)
            poisoned.append(engine.saved)

    def watch(status: Status) -> None:
        if status.phase == "paused":
            pauses.append(status)
            if len(pauses) == 2:  # the first one comes before the host is released
                host_was_alive.append(engine.host.is_alive)
                engine.store.claims.resume_run("t")
        if engine.saved > STEPS["total"]:
            stop(status)

    command = "cdc resume shop.toml t"
    assert engine.run(once=False, before_step=poison, watch=watch, resume_command=command, **STEPS, **PAUSE) == 0
    assert host_was_alive == [False]
    status = pauses[0]
    assert status.waiting_for == "row 7 of table counter is refused: correct it"
    assert status.paused_since is not None
    assert status.resume_command == command
    assert engine.journal.faults(total=STEPS["total"]) == []
    assert max(engine.journal.epochs) == 2
    assert min(n for _, epoch, _, _, rows in engine.journal.of("rows") for _, n in rows if epoch == 2) > poisoned[0]
    assert engine.statuses[-1].waiting_for is None
    [said] = [text for text in caplog.messages if "has been paused since" in text]
    assert "row 7 of table counter is refused: correct it. It delivers nothing" in said
    assert "its source retains the history that has not been read; once the cause is fixed, run `cdc" in said
    assert "run `cdc resume shop.toml t` to continue" in said
    assert "changefeed 't' is resumed" in caplog.messages


def test_a_cause_that_was_not_corrected_pauses_it_again(engine: ThreadEngine) -> None:
    def act(status: Status) -> None:
        if len(person.pauses) < 2:
            engine.script.order("flush", f"TerminalSinkError refused {len(person.pauses)} times")
            engine.store.claims.resume_run("t")
        else:
            stop(status)

    person = Person(act)
    engine.script.order("flush", "TerminalSinkError refused 0 times")
    assert engine.run(once=False, watch=person, **STEPS, **PAUSE) == 0
    assert [status.waiting_for for status in person.pauses] == ["refused 0 times", "refused 1 times"]
    assert reason(engine) == "refused 1 times"
    assert engine.saved == 0


def test_a_run_that_finds_it_paused_touches_nothing_until_it_is_resumed(engine: ThreadEngine) -> None:
    engine.script.order("flush", POISON)
    assert engine.run(once=False, watch=Person(stop), **STEPS, **PAUSE) == 0  # killed, it would leave the same
    assert reason(engine) == "row 7 of table counter is refused: correct it"
    before = engine.journal.events
    for order in ("check", "sink-check", "sink-prepare"):
        engine.script.order(order, "ConfigError was touched")

    def act(_: Status) -> None:
        assert engine.journal.events == before
        for order in ("check", "sink-check", "sink-prepare"):
            assert engine.script.once(order)
        engine.store.claims.resume_run("t")

    person = Person(act)
    engine.statuses.clear()

    def watch(status: Status) -> None:
        person(status)
        if engine.saved > STEPS["total"]:
            stop(status)

    assert engine.run(once=False, watch=watch, **STEPS, **PAUSE) == 0
    assert engine.phases[:3] == ["paused", "starting", "starting Spark"]
    assert person.pauses[0].waiting_for == "row 7 of table counter is refused: correct it"
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_with_once_it_is_paused_and_the_run_fails_until_it_is_resumed(engine: ThreadEngine) -> None:
    engine.script.order("flush", POISON)
    with pytest.raises(TerminalSinkError, match="row 7 of table counter is refused: correct it"):
        engine.run(**STEPS, **PAUSE)
    with pytest.raises(TerminalError) as raised:
        engine.run(**STEPS, **PAUSE)
    assert str(raised.value).startswith("changefeed 't' has been paused since ")
    assert str(raised.value).endswith(
        ": row 7 of table counter is refused: correct it; once the cause is fixed, run `cdc resume FILE t` to continue"
    )
    engine.store.claims.resume_run("t")
    assert engine.run(**STEPS, **PAUSE) == 0
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_a_paused_run_is_stopped_as_any_other_and_stays_paused(engine: ThreadEngine) -> None:
    engine.script.order("read", "HistoryLostError the slot is gone")
    person = Person(lambda _: stop_runs())
    assert engine.run(once=False, watch=person, **STEPS, **PAUSE) == 0
    assert reason(engine) == "the slot is gone"


def test_an_error_while_it_is_being_stopped_is_found_by_the_next_run(engine: ThreadEngine) -> None:
    engine.script.order("hold-emit")

    def watch(status: Status) -> None:
        if status.phase == "running" and engine.script.pending("hold-emit.held"):
            engine.script.order("flush", POISON)
            stop(status)
        if status.phase == "stopping":
            (engine.directory / "hold-emit").unlink(missing_ok=True)

    assert engine.run(once=False, watch=watch, **STEPS, **PAUSE) == 0
    assert reason(engine) == "row 7 of table counter is refused: correct it"


def test_nothing_is_paused_while_it_is_set_up(engine: ThreadEngine) -> None:
    engine.script.order("start", "HistoryLostError the slot is gone")
    with pytest.raises(TerminalError, match="the slot is gone"):
        engine.run(once=False, **STEPS, **PAUSE)
    assert reason(engine) is None


def test_a_paused_run_ends_when_another_one_begins(engine: ThreadEngine) -> None:
    def act(_: Status) -> None:
        engine.store.claims.resume_run("t")
        engine.store.changefeeds.begin_attempt("t")

    engine.script.order("flush", POISON)
    with pytest.raises(FencedError, match=r"began while this one was paused, .*; this attempt \(epoch 1\)"):
        engine.run(once=False, watch=Person(act), **STEPS, **PAUSE)


def test_a_pause_that_is_asked_for_in_the_store_takes_effect_after_the_running_step(engine: ThreadEngine) -> None:
    person, request = resume(engine), PauseRequest(engine)

    def watch(status: Status) -> None:
        person(status)
        request(status)
        if engine.saved > STEPS["total"]:
            stop(status)

    assert engine.run(once=False, watch=watch, **STEPS) == 0
    assert [job.state for job in request.asked] == ["pause-requested"]
    assert [status.waiting_for for status in person.pauses] == ["lunch"]
    assert engine.journal.faults(total=STEPS["total"]) == []
    assert max(engine.journal.epochs) == 2
    history = [event.state for event in engine.store.jobs.events("t")]
    assert history == ["pause-requested", "paused", "running"]


def test_a_pause_in_the_store_ends_a_run_with_once_and_stays(engine: ThreadEngine) -> None:
    with pytest.raises(TerminalError, match=r"paused since .*: lunch; once the cause is fixed, run `cdc"):
        engine.run(watch=PauseRequest(engine), **STEPS)
    assert reason(engine) == "lunch"


def test_an_error_that_pauses_while_the_store_is_out_of_reach_keeps_nobody_waiting(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = RunControl()

    def fail(*_arguments: Any, **_how: Any) -> None:
        assert not control.pause_lock.locked()
        control.stop.set()
        raise RetryableError("progress store cannot be used: database is locked")

    monkeypatch.setattr(engine.store.claims, "pause_run", fail)
    Pausing("t", engine.store, command="", say=lambda **_: None, control=control).pause(1, error="refused", retry=True)
    assert control.stop.is_set()


def test_a_resumption_undoes_an_error_s_pause_that_is_shown_and_not_saved(
    engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause, away = engine.store.claims.pause_run, [1]

    def pause_later(*arguments: Any, **how: Any) -> None:
        if away:
            raise RetryableError(f"progress store cannot be used: {away.pop()}")
        pause(*arguments, **how)

    def watch(status: Status) -> None:
        person(status)
        if engine.saved > STEPS["total"]:
            stop(status)

    monkeypatch.setattr(engine.store.claims, "pause_run", pause_later)
    person = Person(lambda _: resume_runs())
    engine.script.order("flush", POISON)
    assert engine.run(once=False, watch=watch, **STEPS, **PAUSE) == 0
    assert len(person.pauses) == 1
    assert engine.store.jobs.events("t") == []
    assert engine.journal.faults(total=STEPS["total"]) == []


def test_it_waits_although_the_store_is_out_of_reach(engine: ThreadEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    pause, find = engine.store.claims.pause_run, engine.store.changefeeds.find
    away: list[str] = []

    def fail(call: str) -> None:
        away.append(call)
        raise RetryableError("progress store cannot be used: database is locked")

    def pause_later(*arguments: Any, **how: Any) -> None:
        if not away:
            fail("pause")
        pause(*arguments, **how)

    def find_later(name: str) -> Any:
        if away == ["pause"]:
            fail("find")
        return find(name)

    def watch(status: Status) -> None:
        if status.phase == "paused" and away == ["pause", "find"]:
            engine.store.claims.resume_run("t")
        if engine.saved > STEPS["total"]:
            stop(status)

    monkeypatch.setattr(engine.store.claims, "pause_run", pause_later)
    monkeypatch.setattr(engine.store.changefeeds, "find", find_later)
    engine.script.order("flush", POISON)
    assert engine.run(once=False, watch=watch, **STEPS, **PAUSE) == 0
    assert away == ["pause", "find"]
    assert engine.journal.faults(total=STEPS["total"]) == []
