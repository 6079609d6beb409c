"""A process that runs suites against saboteurs: `python -m cdc_conformance.sabotage.worker`.

Reads one line from standard input, {"homes": {kind: module}, "cases": [[kind, promise], …], "limit_s": …, "events":
path}, and ends when standard input ends. Appends a JSON line to `events` when a test begins and when it has ended, so
that its parent knows which test was running when it died.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import pytest

from cdc_conformance.limits import time_limit
from cdc_conformance.reporting import ATTRIBUTE

__all__ = ["main"]

_GRACE_S = 1.0
"""What the process may add to the limits of a test's three phases."""
_FAST_DISK = Path("/dev/shm")
_ENOUGH_BYTES = 1 << 30


class Suites:
    """A pytest plugin that collects the suites of all cases instead of the file on the command line.

    Writes events. A test that hangs fails; one that cannot be interrupted ends the process.
    """

    def __init__(self, order: dict[str, Any], file: IO[str]) -> None:
        self._order = order
        self._file = file
        self._limit_s: float = order["limit_s"]
        self._stderr = os.fdopen(os.dup(2), "w")  # pytest captures the other one

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        from cdc_conformance.installed import FILE, SuiteModule, module_of  # imports suites: pytest rewrites them
        from cdc_conformance.sabotage.cases import Case, kinds

        if module_path != FILE:
            return None
        cases = [Case(*case) for case in self._order["cases"]]
        of_kind = kinds(self._order["homes"], only={case.kind for case in cases})
        classes = [of_kind[case.kind].suite_for(case, f"Test{number}") for number, case in enumerate(cases)]
        return SuiteModule.of(parent, module_of(*classes))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._write(item.nodeid, item.name, "begun")
        faulthandler.dump_traceback_later(3 * self._limit_s + _GRACE_S, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._write(item.nodeid, item.name, "ended")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        with time_limit(self._limit_s, what="it"):
            return (yield)

    pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = getattr(report, ATTRIBUTE, None)
        if outcome is not None and (report.when == "call" or outcome["outcome"] != "passed"):
            self._write(report.nodeid, outcome["name"], outcome["outcome"], outcome["reason"])

    def _write(self, nodeid: str, test: str, outcome: str, reason: str = "") -> None:
        case = int(nodeid.split("::")[1].removeprefix("Test"))
        self._file.write(json.dumps([case, test, outcome, reason]) + "\n")
        self._file.flush()


def main() -> int:
    """Run the cases that standard input names, and return pytest's exit status."""
    faulthandler.enable()
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(os.dup(0),), daemon=True).start()
    with (
        open(order["events"], "a", encoding="utf-8") as file,
        tempfile.TemporaryDirectory(dir=_fast_directory()) as temporary,
    ):
        arguments = [
            *("--disable-plugin-autoload", "-p", "cdc_conformance.pytest_plugin", "-p", "no:cacheprovider"),
            *("-p", "no:faulthandler", "-p", "no:terminalprogress", "--tb=line", "-q", "--no-header"),
            *("-c", os.devnull, "--rootdir", temporary, "--noconftest", "--basetemp", f"{temporary}/t"),
            *("-o", "tmp_path_retention_policy=none", "-W", "error"),
        ]
        from cdc_conformance.installed import FILE

        return int(pytest.main([*arguments, str(FILE)], plugins=[Suites(order, file)]))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    if not os.read(parent, 1):
        os._exit(1)


def _fast_directory() -> Path | None:
    """Return a directory in memory if there is one, otherwise None."""
    fast = _FAST_DISK.is_dir() and os.access(_FAST_DISK, os.W_OK) and shutil.disk_usage(_FAST_DISK).free > _ENOUGH_BYTES
    return _FAST_DISK if fast else None


if __name__ == "__main__":
    sys.exit(main())
