"""Runs suites against saboteurs, in processes that may hang or die."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from cdc_conformance.installed import FILE, SuiteModule, module_of
from cdc_conformance.limits import time_limit
from cdc_conformance.reporting import NAME, Reporting
from cdc_conformance.sabotage.cases import Case, Result, kinds

_GRACE_S = 1.0
"""What a process may add to the limits of a test's three phases."""
_FAST_DISK = Path("/dev/shm")
_ENOUGH_BYTES = 1 << 30
_SPAWN = multiprocessing.get_context("spawn")


def run(cases: Sequence[Case], *, homes: Mapping[str, str], jobs: int, limit_s: float) -> dict[Case, Result]:
    """Return the result of each of *cases*, run in *jobs* processes. No test may take longer than *limit_s*."""
    results: dict[Case, Result] = {}
    while len(results) < len(cases):
        left = [case for case in cases if case not in results]
        with ProcessPoolExecutor(jobs, mp_context=_SPAWN) as pool:
            running = {case: pool.submit(_run, case, homes=homes, limit_s=limit_s) for case in left}
            for case, future in running.items():
                try:
                    results[case] = future.result()
                except BrokenProcessPool:
                    if jobs == 1:  # cases end in their order, so the process died of this one
                        results[case] = Result(died="hung or died")
                    jobs = 1
                    break
    return results


def _run(case: Case, *, homes: Mapping[str, str], limit_s: float) -> Result:
    """Run the suite of *case* in this process."""
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    suite = Suite(case, homes, limit_s)
    gc.freeze()  # pytest collects garbage at its end: what earlier cases have imported need not be looked at again
    with tempfile.TemporaryDirectory(dir=_fast_directory()) as temporary:
        arguments = [
            *("--disable-plugin-autoload", "-p", "cdc_conformance.pytest_plugin", "-p", "no:cacheprovider"),
            *("-p", "no:faulthandler", "-p", "no:terminalprogress", "--tb=line", "-c", os.devnull, "--noconftest"),
            *("--rootdir", temporary, "--basetemp", f"{temporary}/t", "-o", "tmp_path_retention_policy=none"),
            *("-W", "error"),
        ]
        status = pytest.main([*arguments, str(FILE)], plugins=[suite])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        suite.result.died = f"did not run: {' '.join(suite.problems) or f'exit status {status}'}"
    return suite.result


def _fast_directory() -> Path | None:
    """Return a directory in memory if there is one, otherwise None."""
    fast = _FAST_DISK.is_dir() and os.access(_FAST_DISK, os.W_OK) and shutil.disk_usage(_FAST_DISK).free > _ENOUGH_BYTES
    return _FAST_DISK if fast else None


class Suite:
    """A pytest plugin that collects the suite of a case instead of the file on the command line, and prints nothing.

    A test that hangs fails. If it cannot be interrupted, its process ends.
    """

    def __init__(self, case: Case, homes: Mapping[str, str], limit_s: float) -> None:
        self.result = Result()
        self.problems: list[str] = []
        self._case = case
        self._homes = homes
        self._limit_s = limit_s

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if module_path != FILE:
            return None
        kind = kinds(self._homes, only={self._case.kind})[self._case.kind]  # imports suites: pytest rewrites them
        return SuiteModule.of(parent, module_of(kind.suite_for(self._case, "TestIt")))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(str(report.longrepr))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        faulthandler.dump_traceback_later(3 * self._limit_s + _GRACE_S, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        with time_limit(self._limit_s, what="it"):
            return (yield)

    pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        reporting = session.config.pluginmanager.get_plugin(NAME)
        assert isinstance(reporting, Reporting)
        for outcome in reporting.report.outcomes():
            self.result.add(outcome.name, outcome.outcome, outcome.reason)
