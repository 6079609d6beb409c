"""What each test file costs: processor seconds, its own and of the processes that it started, and wall seconds.

Each run replaces its section of `build/test-costs.json`; `--costs` prints the dearest files. A session fixture has an
entry of its own, as the file that happens to ask first does not decide what a server's start costs. The budget of each
file is in `tests/budgets.toml`: `cdc_testing.budgets` compares.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from cdc_testing.budgets import costs_file, dearest

_OUTPUT = "costs"
_recorders: list[_Recorder] = []


@dataclass(frozen=True, slots=True)
class _Used:
    parent: int
    own_s: float
    waited_s: float


class ProcessorTime:
    """The processor seconds of this process and of all that descend from it, ended ones included.

    What a process used since the last reading is lost when it ends and its parent ended before it.
    """

    def __init__(self) -> None:
        self._seen = _descendants()
        self._total_s = 0.0

    def read(self) -> float:
        """Return the seconds since this object was made."""
        now = _descendants()
        gone = {pid: used for (pid, begun), used in self._seen.items() if (pid, begun) not in now}
        for key, used in now.items():
            before = self._seen.get(key, _Used(used.parent, 0.0, 0.0))
            # The time of an ended child comes a second time, with its parent's; what was read of it is counted.
            waited_s = used.waited_s - before.waited_s - _below(key[0], gone)
            self._total_s += used.own_s - before.own_s + max(0.0, waited_s)
        self._seen = now
        return self._total_s


def _descendants() -> dict[tuple[int, float], _Used]:
    me = psutil.Process()
    found: dict[tuple[int, float], _Used] = {}
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            found[process.pid, process.create_time()] = _Used(
                process.ppid(), times.user + times.system, times.children_user + times.children_system
            )
    return found


def _below(parent: int, gone: Mapping[int, _Used]) -> float:
    return sum(used.own_s + used.waited_s + _below(pid, gone) for pid, used in gone.items() if used.parent == parent)


class _Recorder:
    """Divides the time of this process among the files of its tests."""

    def __init__(self) -> None:
        self.costs: dict[str, dict[str, float]] = {}
        self._processor = ProcessorTime()
        self._names = ["collection"]
        self._cpu_s, self._wall_s = 0.0, time.monotonic()

    def name(self, name: str) -> None:
        """What comes from now on belongs to *name*."""
        if self._names[-1] != name:
            self.book()
            self._names[-1] = name

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """What the block takes belongs to *name*."""
        self.book()
        self._names.append(name)
        try:
            yield
        finally:
            self.book()
            self._names.pop()

    def count(self) -> None:
        self._entry()["tests"] += 1

    def book(self) -> None:
        cpu_s, wall_s = self._processor.read(), time.monotonic()
        entry = self._entry()
        entry["cpu_s"] += cpu_s - self._cpu_s
        entry["wall_s"] += wall_s - self._wall_s
        self._cpu_s, self._wall_s = cpu_s, wall_s

    def _entry(self) -> dict[str, float]:
        return self.costs.setdefault(self._names[-1], {"cpu_s": 0.0, "wall_s": 0.0, "tests": 0})


@contextmanager
def start_of(name: str) -> Iterator[None]:
    """What the block takes belongs to the start of *name*, which tests of several files share, and to no file."""
    with _recorders[-1].inside(f"start of {name}") if _recorders else nullcontext():
        yield


class _Costs:
    """The plugin: each process records, the first one writes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._recorder = _Recorder()
        _recorders.append(self._recorder)
        self._sums: dict[str, dict[str, float]] = {}
        self._begun = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._recorder.name(item.nodeid.partition("::")[0])
        self._recorder.count()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope != "session":
            return (yield)
        with self._recorder.inside(f"fixture {fixturedef.argname}"):
            return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._add(getattr(node, "workeroutput", {}).get(_OUTPUT, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._recorder.book()
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = self._recorder.costs
            return
        if self._config.getoption("lf", False):  # the costs of the whole run stay
            return
        self._add(self._of_first_process() if self._sums else self._recorder.costs)
        file = costs_file()
        file.parent.mkdir(exist_ok=True)
        runs = json.loads(file.read_text()) if file.exists() else {}
        runs[self._config.option.markexpr or "all"] = {
            "wall_s": round(time.monotonic() - self._begun, 1),
            "cpu_s": round(sum(cost["cpu_s"] for cost in self._sums.values()), 1),
            "files": {
                name: {key: round(value, 2) for key, value in cost.items()}
                for name, cost in sorted(self._sums.items(), key=lambda pair: -pair[1]["cpu_s"])
            },
        }
        scratch = file.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(runs, indent=1))
        scratch.replace(file)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._config.getoption("lf", False):
            return
        run = json.loads(costs_file().read_text())[self._config.option.markexpr or "all"]
        terminalreporter.write_line(f"{run['cpu_s']:,.0f} s of processor time in {run['wall_s']:,.0f} s")
        if self._config.getoption("--costs"):
            terminalreporter.section("the dearest files, in seconds of processor")
            for line in dearest(run["files"]):
                terminalreporter.write_line(line)

    def _of_first_process(self) -> dict[str, dict[str, float]]:
        """Return what this process took that handed out the tests, without the workers, which descend from it."""
        (whole,) = self._recorder.costs.values()
        others_s = sum(cost["cpu_s"] for cost in self._sums.values())
        return {"shared servers and the first process": {**whole, "cpu_s": max(0.0, whole["cpu_s"] - others_s)}}

    def _add(self, costs: Mapping[str, Mapping[str, float]]) -> None:
        for name, cost in costs.items():
            sums = self._sums.setdefault(name, {"cpu_s": 0.0, "wall_s": 0.0, "tests": 0})
            for key, value in cost.items():
                sums[key] += value


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="print the test files that took the most processor time")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Costs(config), "cdc-costs")
