"""Seeded histories of changefeeds in one process: things happen to some of them, and must not happen to the others.

`python -m cdc_testing.side_by_side SEED MINUTES DIRECTORY` plays one for that long.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cdc_testing.engine import Journal, counter_feed, eventually
from cdc_testing.scripted import Script
from pyspark import SparkContext

from cdc_core.engine.supervisor import Supervisor
from cdc_core.spark.runner import Runner
from cdc_core.store.progress import ProgressStore, store_url

_TOTAL = 10**9
_LEFT_ALONE = "z"
_ERRORS = (
    ("advance", "RetryableRangefeedError the source is down"),
    ("read", "RetryableRangefeedError the connection is lost"),
    ("emit", "OSError no route to host"),
    ("flush", "RetryableSinkError the sink is busy"),
    ("before-report", "OSError the report is lost"),
    ("read", "kill"),
    ("flush", "kill"),
)


class SideBySide:
    """Changefeeds of one runner in *directory*, three that something happens to and one that is left alone.

    They have a Spark session of their own, with task slots for all of them.
    """

    def __init__(self, directory: Path, *, seed: int) -> None:
        self._random = random.Random(seed)
        self._runner = Runner(directory, changefeeds=4)
        self._scripts = {name: Script(directory / name) for name in ("a", "b", "c", _LEFT_ALONE)}
        self._running: dict[str, Supervisor] = {}
        self._store = ProgressStore(store_url(directory))
        self._epoch = 1
        self.actions: list[str] = []
        for script in self._scripts.values():
            script.directory.mkdir(parents=True)

    def play(self, until: Callable[[], bool]) -> None:
        """Act until *until* returns true, then stop everything. Raises: AssertionError when something hangs."""
        try:
            self._play(until)
        finally:
            for script in self._scripts.values():
                (script.directory / "hold-emit").unlink(missing_ok=True)
            self._runner.close()

    def _play(self, until: Callable[[], bool]) -> None:
        for name in self._scripts:
            self._start(name)
        for name in self._scripts:
            self._await_rows(name)
        acts = [self._fail, self._fail, self._stop, self._abandon, self._pause, self._hang, self._end, self._kill_jvm]
        while not until():
            act = self._random.choice(acts)
            name = self._random.choice("abc")
            self.actions.append(f"{act.__name__} {name}")
            act(name)
            self._await_rows(_LEFT_ALONE)
            assert self._newest(_LEFT_ALONE) == self._epoch, f"{self.actions[-1]} reached another changefeed"
        for supervisor in self._running.values():
            supervisor.stop()
        for name, supervisor in self._running.items():
            ended = supervisor.wait(400)
            assert ended is not None, f"{name} does not stop: {supervisor.status}"
            assert ended.kind == "stopped", f"{name}: {ended}"

    def faults(self) -> list[str]:
        """Return what breaks a promise, by changefeed."""
        found = []
        for name in self._scripts:
            journal = self._journal(name)
            found += [f"{name}: {fault}" for fault in journal.faults(total=max(journal.resolved))]
        return found

    def rows(self) -> int:
        return sum(len(self._journal(name).numbers()) for name in self._scripts)

    def _start(self, name: str) -> None:
        control = self._scripts[name].directory
        feed = counter_feed(control, name=name, total=_TOTAL, rows_per_step=200, options={"on_error": "fail"})
        self._running[name] = self._runner.start(feed)

    def _fail(self, name: str) -> None:
        where, what = self._random.choice(_ERRORS)
        self._scripts[name].order(where, what)
        eventually(lambda: not self._scripts[name].pending(where), what=f"{name} meets '{what}' at {where}")
        self._await_rows(name)

    def _end(self, name: str) -> None:
        self._scripts[name].order("flush", "TerminalSinkError the disk is full")
        ended = self._running[name].wait(400)
        assert ended is not None, f"{name} goes on"
        assert str(ended.error) == "the disk is full", f"{name}: {ended}"
        self._start(name)
        self._await_rows(name)

    def _stop(self, name: str) -> None:
        self._running[name].stop()
        ended = self._running[name].wait(400)
        assert ended is not None, f"{name} does not stop"
        assert ended.kind == "stopped", f"{name}: {ended}"
        self._start(name)

    def _abandon(self, name: str) -> None:
        self._running[name].abandon()
        assert self._running[name].wait(400) is not None, f"{name} does not end"
        self._start(name)
        self._await_rows(name)

    def _pause(self, name: str) -> None:
        supervisor = self._running[name]
        supervisor.pause("so that something happens")
        eventually(lambda: supervisor.status.phase == "paused", what=f"{name} is paused: {supervisor.status}")
        self._await_rows(_LEFT_ALONE)
        supervisor.resume()
        self._await_rows(name)

    def _hang(self, name: str) -> None:
        script = self._scripts[name]
        script.order("hold-emit")
        eventually(lambda: script.pending("hold-emit.held"), what=f"{name} hangs")
        self._await_rows(_LEFT_ALONE)
        (script.directory / "hold-emit").unlink()
        self._await_rows(name)

    def _kill_jvm(self, _name: str) -> None:
        before = {name: self._newest(name) for name in self._scripts}
        assert SparkContext._gateway is not None
        SparkContext._gateway.proc.kill()
        for name in self._scripts:
            eventually(lambda name=name: self._newest(name) > before[name], what=f"{name} begins again")
        self._epoch = self._newest(_LEFT_ALONE)

    def _newest(self, name: str) -> int:
        known = self._store.changefeeds.find(name)
        return 0 if known is None else known.epoch

    def _await_rows(self, name: str) -> None:
        """Return when *name* has delivered rows that were not there before."""
        before = self._rows(name)
        eventually(
            lambda: self._rows(name) > before,
            what=f"rows of {name} after {self.actions[-1:]}: {self._running[name].status}",
        )

    def _rows(self, name: str) -> float:
        progress = self._store.progress.load(name)
        return 0 if progress is None else progress.counters.get("rows", 0)

    def _journal(self, name: str) -> Journal:
        return Journal(self._scripts[name].directory)


def main(seed: int, minutes: float, directory: Path) -> int:
    """Play the history of *seed* for so many minutes; return the exit status."""
    deadline = time.monotonic() + minutes * 60
    history = SideBySide(directory, seed=seed)
    history.play(lambda: time.monotonic() > deadline)
    faults = history.faults()
    print(f"seed {seed}: {len(history.actions)} actions, {history.rows():,} rows, {faults or 'no faults'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
