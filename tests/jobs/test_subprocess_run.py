"""A changefeed in a process of its own: its orders, its end, and what is left of it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.processes import command, lives
from cdc_testing.runs import eventually
from cdc_testing.scripted import Script
from cdc_testing.shown_secrets import shown_secrets

from cdc_core.engine.ipc import lease_clock, line, packed
from cdc_core.engine.supervisor import Outcome
from cdc_core.errors import ConfigError
from cdc_core.jobs.subprocess_run import SubprocessLostError, SubprocessRun
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.logs import JsonFormatter

OWN_SPARK = {"master": "local[2,2]"}
STEPS: dict[str, Any] = {"total": 5000, "rows_per_step": 500, "spark": OWN_SPARK}
SECRET = "s3cr3t-of-the-source"
LONG_S = 600.0

pytestmark = pytest.mark.usefixtures("workers_find_the_tests")


def child(directory: Path, *, lease_s: float = LONG_S, run: Any = None, **feed: Any) -> SubprocessRun:
    """Return a run that is still to be started."""
    return SubprocessRun(
        counter_feed(directory, **feed),
        store=store_url(directory),
        state_dir=directory,
        until=lease_clock() + lease_s,
        **(run or {}),
    )


def saved(directory: Path) -> int:
    store = ProgressStore(store_url(directory))
    try:
        progress = store.progress.load("t")
    finally:
        store.close()
    return 0 if progress is None else progress.token["n"]


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "cdc_core.jobs.subprocess_main" in command(each)]


def the_child() -> psutil.Process:
    (found,) = eventually("the process", children)
    return found


def in_the_middle_of_a_step(directory: Path, run: SubprocessRun | None = None) -> None:
    """Return when a task holds rows that it has not emitted, two steps after the first."""

    def met(condition: bool) -> bool:
        assert run is None or run.outcome is None, run and run.outcome
        return condition

    script = Script(directory)
    eventually("two steps", lambda: met(saved(directory) >= 1000))
    script.order("hold-emit")
    eventually("a step in the middle", lambda: met(script.pending("hold-emit.held")))


def ended(run: SubprocessRun) -> Outcome:
    outcome = run.wait(300.0)
    assert outcome is not None, f"it goes on: {run.status}"
    return outcome


@pytest.mark.slow
def test_it_obeys_shows_itself_and_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(caplog.handler, "formatter", JsonFormatter())
    secrets: dict[str, Any] = {"sources": (f"counter://u:{SECRET}@host",), "plain_secrets": frozenset({SECRET})}
    first = child(tmp_path, **STEPS, **secrets, run={"resume_command": "cdc resume t"})
    first.start()
    assert not first.has_begun
    process = the_child()
    in_the_middle_of_a_step(tmp_path, first)
    family = [process, *process.children(recursive=True)]
    assert len(family) >= 4
    assert not [each for each in family if shown_secrets(command(each), [SECRET])]
    assert shown_secrets("\n".join(process.environ().values()), [SECRET]) == []
    eventually("the rows in the status", lambda: first.status.rows >= 1000)
    assert first.has_begun
    first.abandon()
    assert ended(first).kind == "abandoned"
    assert not [each for each in family if lives(each)]
    [logged] = [json.loads(text) for text in caplog.text.splitlines() if "no scan; following the log" in text]
    assert (logged["changefeed"], logged["event"]) == ("t", "engine.start_position.start_token")

    (tmp_path / "hold-emit").unlink()
    second = child(tmp_path, **STEPS, **secrets)
    second.start()
    eventually("all rows", lambda: saved(tmp_path) >= 5000 or second.outcome)
    second.stop()
    assert ended(second) == Outcome("stopped")
    assert second.status.phase == "stopped"
    assert Journal(tmp_path).faults(total=5000) == []
    assert shown_secrets((tmp_path / "t.spark.log").read_bytes(), [SECRET]) == []


@pytest.mark.slow
def test_a_killed_child_takes_its_processes_along(tmp_path: Path) -> None:
    run = child(tmp_path, **STEPS)
    run.start()
    process = the_child()
    in_the_middle_of_a_step(tmp_path, run)
    family = [process, *process.children(recursive=True)]
    process.kill()
    outcome = ended(run)
    assert outcome.kind == "failed"
    assert isinstance(outcome.error, SubprocessLostError)
    assert f"(process {process.pid}) ended with status -9" in str(outcome.error)
    assert not [each for each in family if lives(each)]
    run.kill()
    run.stop()


@pytest.mark.slow
def test_nothing_outlives_the_lease_of_a_frozen_node(tmp_path: Path) -> None:
    (tmp_path / "job").write_text(packed(counter_feed(tmp_path, **STEPS)))
    node = psutil.Popen([sys.executable, "-m", "cdc_testing.child_parent", str(tmp_path), "5"])
    try:
        in_the_middle_of_a_step(tmp_path)
        family = node.children(recursive=True)
        assert len(family) >= 4
        node.suspend()
        eventually("the end of all", lambda: not [each for each in family if lives(each)])
        node.resume()
        node.wait(300)
        assert "changefeed 't': its process" in (tmp_path / "outcome").read_text()
    finally:
        if node.poll() is None:
            node.kill()
        node.wait()


def test_a_child_that_does_not_hear_of_its_lease_is_killed(tmp_path: Path) -> None:
    run = child(tmp_path, lease_s=4.0)
    run.start()
    process = the_child()
    process.suspend()
    outcome = ended(run)
    assert isinstance(outcome.error, SubprocessLostError)
    assert "had lost the lease of its node" in str(outcome.error)
    assert not lives(process)


def test_a_child_may_be_killed_at_any_time(tmp_path: Path) -> None:
    run = child(tmp_path)
    run.start()
    process = the_child()
    run.kill()
    assert not lives(process)
    assert "was killed" in str(ended(run).error)
    never = child(tmp_path)
    never.kill()
    never.start()
    assert str(ended(never).error).startswith("changefeed 't': its process was killed")


def test_a_changefeed_that_cannot_run_says_why(tmp_path: Path) -> None:
    run = child(tmp_path, spark={"master": "spark://nowhere:7077"})
    run.start()
    outcome = ended(run)
    assert isinstance(outcome.error, ConfigError)
    assert "spark.authenticate" in str(outcome.error)
    unknown = child(tmp_path, run={"no_such": 1})
    unknown.start()
    error = ended(unknown).error
    assert isinstance(error, RuntimeError)
    assert "TypeError" in str(error)


def test_a_process_that_cannot_be_started_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    run = child(tmp_path)
    assert run.wait() is None
    run.start()
    error = ended(run).error
    assert isinstance(error, SubprocessLostError)
    assert "could not be started" in str(error)


@pytest.mark.parametrize("why", ["its node has ended", "its lease is over"])
def test_a_child_ends_by_itself(why: str, tmp_path: Path) -> None:
    feed = packed(counter_feed(tmp_path))
    job = {"feed": feed, "store": store_url(tmp_path), "state_dir": str(tmp_path), "level": 20, "run": {}}
    until = lease_clock() + (2.0 if why == "its lease is over" else LONG_S)
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc_core.jobs.subprocess_main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    os.write(process.stdin.fileno(), line(job=job, until=until))
    if why == "its node has ended":
        process.stdin.close()
    assert process.wait(300) == 1
    assert why == "its node has ended" or lease_clock() >= until
    process.stdin.close()
