"""Runs suites against saboteurs, in processes that may hang or die."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from cdc_conformance.installed import FILE, SuiteModule, module_of
from cdc_conformance.limits import time_limit
from cdc_conformance.reporting import ATTRIBUTE
from cdc_conformance.sabotage.cases import Case, Result, kinds

_GRACE_S = 1.0
"""What a process may add to the limits of a test's three phases."""
_FAST_DISK = Path("/dev/shm")
_ENOUGH_BYTES = 1 << 30
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The cases of one process, and the limit of each of their tests."""

    homes: Mapping[str, str]
    cases: Sequence[Case]
    limit_s: float


def run(cases: Sequence[Case], *, homes: Mapping[str, str], jobs: int, limit_s: float) -> dict[Case, Result]:
    """Return the result of each of *cases*, run in *jobs* processes. No test may take longer than *limit_s*."""
    shares = [Share(homes=homes, cases=cases[number::jobs], limit_s=limit_s) for number in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        return {case: result for results in pool.map(_run, shares) for case, result in results.items()}


def _run(share: Share) -> dict[Case, Result]:
    """Run the cases in order. When a process dies, another one continues after the case that it had begun."""
    results: dict[Case, Result] = {}
    while len(results) < len(share.cases):
        left = share.cases[len(results) :]
        found, died = _run_process(Share(homes=share.homes, cases=left, limit_s=share.limit_s))
        if died:
            for case in list(found)[-1:] or left:  # without any test, no case can run
                found.setdefault(case, Result()).died = died
        results |= found
    return results


def _run_process(share: Share) -> tuple[dict[Case, Result], str]:
    """Return the results of the cases that a process began, and how it died; empty when it did not die."""
    results: dict[Case, Result] = {}
    running, ended = "", False
    events, sent = _SPAWN.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile() as output:
        process = _SPAWN.Process(target=_work, args=(share, sent, output.name), daemon=True)
        process.start()
        sent.close()
        try:
            while events.poll(3 * share.limit_s + _GRACE_S if running else None):
                number, test, outcome, reason = events.recv()
                results |= {case: Result() for case in share.cases[len(results) : number + 1]}
                if outcome in ("begun", "ended"):
                    running = test if outcome == "begun" else ""
                else:
                    results[share.cases[number]].add(test, outcome, reason)
        except (EOFError, OSError):  # also in the middle of an event
            ended = True
        if not ended:
            process.kill()
        process.join()
        where = f"in {running}" if running else "before any test"
        status = process.exitcode or 0
        if not ended:
            return results, f"hung {where}"
        if status < 0:
            return results, f"died {where}: {signal.Signals(-status).name}"
        if status in (0, 1) and len(results) == len(share.cases) and not running:
            return results, ""
        text = [line.strip() for line in output.read().decode(errors="replace").splitlines()]
    said = [line for line in text if "Error" in line or line.startswith("E  ")]
    return results, f"died {where}: exit status {status}" + (f" ({' / '.join(said[:3])})" if said else "")


def _work(share: Share, events: Connection, output: str) -> None:
    """Run the suites of *share*. This is all that its process does; what it prints goes to the file *output*."""
    for descriptor in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), descriptor)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(dir=_fast_directory()) as temporary:
        arguments = [
            *("--disable-plugin-autoload", "-p", "cdc_conformance.pytest_plugin", "-p", "no:cacheprovider"),
            *("-p", "no:faulthandler", "-p", "no:terminalprogress", "--tb=line", "-q", "--no-header"),
            *("-c", os.devnull, "--rootdir", temporary, "--noconftest", "--basetemp", f"{temporary}/t"),
            *("-o", "tmp_path_retention_policy=none", "-W", "error"),
        ]
        status = pytest.main([*arguments, str(FILE)], plugins=[Suites(share, events)])
    sys.exit(int(status))


def _fast_directory() -> Path | None:
    """Return a directory in memory if there is one, otherwise None."""
    fast = _FAST_DISK.is_dir() and os.access(_FAST_DISK, os.W_OK) and shutil.disk_usage(_FAST_DISK).free > _ENOUGH_BYTES
    return _FAST_DISK if fast else None


class Suites:
    """A pytest plugin that collects the suites of all cases instead of the file on the command line.

    Sends an event when a test begins and when it has ended, so that the other process knows which test was running when
    this one died. A test that hangs fails.
    """

    def __init__(self, share: Share, events: Connection) -> None:
        self._share = share
        self._events = events

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if module_path != FILE:
            return None
        cases = self._share.cases
        of_kind = kinds(self._share.homes, only={case.kind for case in cases})  # imports suites: pytest rewrites them
        classes = [of_kind[case.kind].suite_for(case, f"Test{number}") for number, case in enumerate(cases)]
        return SuiteModule.of(parent, module_of(*classes))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._send(item.nodeid, item.name, "begun")
        try:
            return (yield)
        finally:
            self._send(item.nodeid, item.name, "ended")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        with time_limit(self._share.limit_s, what="it"):
            return (yield)

    pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = getattr(report, ATTRIBUTE, None)
        if outcome is not None and (report.when == "call" or outcome["outcome"] != "passed"):
            self._send(report.nodeid, outcome["name"], outcome["outcome"], outcome["reason"])

    def _send(self, nodeid: str, test: str, outcome: str, reason: str = "") -> None:
        self._events.send((int(nodeid.split("::")[1].removeprefix("Test")), test, outcome, reason))
