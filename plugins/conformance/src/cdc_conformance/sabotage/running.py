"""Runs the suites against all saboteurs in several processes, and survives processes that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cdc_conformance.sabotage.cases import Case, Result

__all__ = ["run"]


def run(cases: Sequence[Case], *, homes: Mapping[str, str], jobs: int, limit_s: float) -> dict[Case, Result]:
    """Return the result of each of *cases*, run in *jobs* processes. No test may take longer than *limit_s*."""
    order = {"homes": dict(homes), "limit_s": limit_s}
    with ThreadPoolExecutor(jobs) as pool:
        shares = [pool.submit(_run_share, cases[number::jobs], order) for number in range(jobs)]
        return {case: result for share in shares for case, result in share.result().items()}


def _run_share(cases: Sequence[Case], order: Mapping[str, object]) -> dict[Case, Result]:
    """Run *cases* one after the other. When a process dies, another one continues after the case that it had begun."""
    results: dict[Case, Result] = {}
    while cases:
        found, died = _run_process(cases, order)
        results |= {case: Result() for case in cases} if died and not found else found  # no case can run
        if died:
            at_fault = list(found)[-1:] or cases
            for case in at_fault:
                results[case].died = died
        cases = cases[len(found) :] if died and found else ()
    return results


def _run_process(cases: Sequence[Case], order: Mapping[str, object]) -> tuple[dict[Case, Result], str]:
    """Return the results of the cases that a process began, and how it died; empty when it did not die."""
    with tempfile.TemporaryDirectory() as directory:
        events, output = Path(directory, "events"), Path(directory, "output")
        events.touch()
        with output.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "cdc_conformance.sabotage.worker"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
            )
        assert process.stdin is not None
        with process, process.stdin as line:  # when this process ends, the pipe closes and that one ends too
            named = [[case.kind, case.promise] for case in cases]
            line.write(f"{json.dumps({**order, 'cases': named, 'events': str(events)})}\n".encode())
            line.flush()
            process.wait()
        results: dict[Case, Result] = {}
        running = ""
        for text in events.read_text(encoding="utf-8").splitlines():
            number, test, outcome, reason = json.loads(text)
            results |= {case: Result() for case in cases[len(results) : number + 1]}
            if outcome in ("begun", "ended"):
                running = test if outcome == "begun" else ""
            else:
                results[cases[number]].add(test, outcome, reason)
        whole = process.returncode in (0, 1) and len(results) == len(cases) and not running
        return results, "" if whole else _death(process.returncode, running, output.read_text(errors="replace"))


def _death(status: int, test: str, output: str) -> str:
    """Return how a process died."""
    where = f"in {test}" if test else "before any test"
    if "Timeout (" in output:
        return f"hung {where}"
    if status < 0:
        return f"died {where}: {signal.Signals(-status).name}"
    said = [line.strip() for line in output.splitlines() if "Error" in line or line.startswith("E  ")]
    return f"died {where}: exit status {status}" + (f" ({' / '.join(said[:3])})" if said else "")
