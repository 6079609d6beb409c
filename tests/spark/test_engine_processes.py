"""A changefeed in a process and a JVM of its own: what it shows, and what is left when it ends or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.processes import lives
from cdc_testing.runs import eventually
from cdc_testing.shown_secrets import shown_secrets

from cdc_core.engine.ipc import packed

if TYPE_CHECKING:
    Engine = Any

STEPS: dict[str, Any] = {"total": 10_000_000, "rows_per_step": 500}

SECRETS = ("s3cr3t/of=the:source", "k3y_of_the_sink", "p455_of_an_option")


class Driver:
    """A run in a process group of its own, as a terminal's job is. Another *state_dir* stands for another host."""

    def __init__(self, engine: Engine, *, state_dir: Path | None = None, **job: Any) -> None:
        directory = state_dir or engine.directory
        directory.mkdir(exist_ok=True)
        (directory / "job").write_text(packed(counter_feed(engine.directory, **job)))
        self.engine = engine
        self.output = directory / "output"
        with self.output.open("wb") as output:
            self.process = psutil.Popen(
                [sys.executable, "-m", "cdc_testing.engine", str(directory), str(engine.directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def until(self, condition: Any, *, what: str) -> None:
        def met() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            return bool(condition())

        eventually(what, met)

    def family(self) -> list[psutil.Process]:
        """The JVM, the planner, the coordinator and the workers."""
        return self.process.children(recursive=True)  # type: ignore[no-any-return]

    def wait(self) -> int:
        return int(self.process.wait(timeout=400))


@contextmanager
def ended_drivers() -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    try:
        yield drivers
    finally:
        for driver in drivers:
            for process in [driver.process, *(driver.family() if driver.process.is_running() else [])]:
                if process.is_running():
                    process.kill()
            driver.process.wait()


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    with ended_drivers() as drivers:
        yield drivers


def all_gone(family: list[psutil.Process]) -> None:
    eventually(f"the end of {family}", lambda: not any(map(lives, family)))


def test_a_killed_driver_takes_its_processes_along_and_the_next_run_goes_on(
    engine: Engine, drivers: list[Driver]
) -> None:
    driver = Driver(engine, **STEPS)
    drivers.append(driver)
    driver.until(lambda: engine.saved >= 1000, what="two steps")
    engine.script.order("hold-emit")
    driver.until(lambda: engine.script.pending("hold-emit.held"), what="a step in the middle")
    family = driver.family()
    assert {pid for _, _, pid in engine.journal.of("open")} & {process.pid for process in family}
    driver.process.kill()
    all_gone(family)
    (engine.directory / "hold-emit").unlink()
    total = engine.saved + 1000
    assert engine.run(**{**STEPS, "total": total}) == 0
    assert engine.journal.faults(total=total) == []


@pytest.mark.slow
@pytest.mark.parametrize("held", ["hold-read", "hold-emit"])
def test_an_attempt_that_lost_its_epoch_on_another_host_emits_nothing_more(
    held: str, engine: Engine, drivers: list[Driver]
) -> None:
    older = Driver(engine, state_dir=engine.directory / "other-host", **STEPS)
    drivers.append(older)
    older.until(lambda: engine.saved >= 1000, what="two steps")
    engine.script.order(held)
    older.until(lambda: engine.script.pending(f"{held}.held"), what="a step in the middle")
    frozen: list[psutil.Process] = []
    for process in [older.process, *older.family()]:
        with suppress(psutil.NoSuchProcess):  # some are short-lived
            process.suspend()
            frozen.append(process)
    (engine.directory / held).unlink()
    total = engine.saved + 1000
    assert engine.run(**{**STEPS, "total": total}) == 0
    emitted = engine.journal.events
    for process in frozen:
        process.resume()
    assert older.wait() != 0
    assert "a newer attempt took over" in older.output.read_text()
    assert engine.journal.events == emitted
    assert engine.journal.faults(total=total) == []


def found_in(directory: Path) -> dict[str, list[str]]:
    """Return the secrets that each file below *directory* shows."""
    found: dict[str, list[str]] = {}
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "job" and (shown := shown_secrets(path.read_bytes(), SECRETS)):
            found[str(path.relative_to(directory))] = shown
    return found


@dataclass
class Interrupted:
    """A run that met errors with secrets and was interrupted in the middle of a step."""

    engine: Engine
    saved: int
    """What was saved before that step."""
    shown: dict[str, list[str]]
    """The secrets in files and command lines while it ran."""


@pytest.fixture(scope="module")
def interrupted(make_engine: Callable[[], Engine]) -> Iterator[Interrupted]:
    engine = make_engine()
    source, sink, option = SECRETS
    (engine.directory / "events").mkdir()
    (engine.directory / "t.spark.tmp" / "blockmgr-of-a-killed-jvm").mkdir(parents=True)
    job = {
        "sources": (f"counter://u:{source}@host",),
        "destination": f"journal://u:{sink}@bucket",
        "plain_secrets": frozenset(SECRETS),
        "spark": {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(engine.directory / "events"),
            "spark.log.level": "INFO",
            "spark.sql.streaming.numRecentProgressUpdates": "100",
        },
    }
    for order in ("advance", "read", "flush", "resolved"):
        engine.script.order(order, f"RuntimeError {order} failed with {option}\nlogin with {source} and {sink} failed")
    with ended_drivers() as drivers:
        driver = Driver(engine, **STEPS, **job)
        drivers.append(driver)
        driver.until(lambda: engine.saved >= 3000, what="six steps")
        engine.script.order("hold-emit")
        driver.until(lambda: engine.script.pending("hold-emit.held"), what="a step in the middle")
        assert list((engine.directory / "t.run").rglob("offsets/*"))
        saved, family, shown = engine.saved, driver.family(), found_in(engine.directory)
        for process in [driver.process, *family]:
            with suppress(psutil.NoSuchProcess):  # workers come and go
                line = " ".join(process.cmdline())
                shown[line] = shown_secrets(line, SECRETS)
        os.killpg(driver.process.pid, signal.SIGTERM)  # as `timeout` does
        driver.until(lambda: (engine.directory / "phase").read_text() == "stopping", what="the stop")
        (engine.directory / "hold-emit").unlink()
        assert driver.wait() == 0
        all_gone(family)
        yield Interrupted(engine, saved, shown)


@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_job_saves_the_running_step(interrupted: Interrupted) -> None:
    engine = interrupted.engine
    assert engine.saved == interrupted.saved + STEPS["rows_per_step"]
    assert engine.journal.numbers() == set(range(1, engine.saved + 1))


@pytest.mark.slow
def test_a_run_that_has_ended_leaves_no_scratch_behind(interrupted: Interrupted) -> None:
    directory = interrupted.engine.directory
    assert list((directory / "t.spark.tmp").iterdir()) == []
    assert {path.name for path in directory.iterdir() if path.name.startswith("t.")} == {
        "t.lock",
        "t.tasks.lock",
        "t.spark.log",
        "t.spark.tmp",
    }


@pytest.mark.slow
def test_no_secret_is_in_a_plan_a_log_an_event_or_a_checkpoint(interrupted: Interrupted) -> None:
    directory = interrupted.engine.directory
    assert not any(interrupted.shown.values())
    assert found_in(directory) == {}
    spark_log = (directory / "t.spark.log").read_text()
    assert "read failed with ***" in spark_log  # the failures are there, with their causes, masked
    assert "login with *** and *** failed" in spark_log
    plan = (directory / "shown").read_text()
    assert "Physical Plan" in plan
    assert "'token'" in plan or '"token"' in plan  # positions are shown: they hold no secret
    [events] = [path for path in (directory / "events").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert "SparkListenerApplicationStart" in events.read_text()
