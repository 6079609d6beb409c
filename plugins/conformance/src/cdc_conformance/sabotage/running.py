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
from dataclasses import dataclass, field
from pathlib import Path

from cdc_conformance.sabotage.cases import Case, Result

__all__ = ["run"]


def run(cases: Sequence[Case], *, homes: Mapping[str, str], jobs: int, limit_s: float) -> dict[Case, Result]:
    """Return the result of each of *cases*, run in *jobs* processes. No test may take longer than *limit_s*.

    When a process dies, only its current case is lost: another process continues with the next one.
    """
    jobs = max(1, min(jobs, len(cases)))
    shares = [_Share(list(cases[number::jobs])) for number in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(share.run, homes, limit_s) for share in shares]:
            future.result()
    return {case: result for share in shares for case, result in share.results.items()}


@dataclass(slots=True)
class _Share:
    """The cases of one process, and of the processes that replace it when it dies."""

    cases: list[Case]
    results: dict[Case, Result] = field(default_factory=dict)

    def run(self, homes: Mapping[str, str], limit_s: float) -> None:
        while self.cases:
            done, died = self._run_process(homes, limit_s)
            if not died:
                return
            self.cases = self.cases[done:]
            # only the current case can be at fault; if none was begun, no case can run
            broken = self.cases[:1] if done else self.cases
            for case in broken:
                self.results.setdefault(case, Result()).died = died
            self.cases = self.cases[len(broken) :]

    def _run_process(self, homes: Mapping[str, str], limit_s: float) -> tuple[int, str]:
        """Return how many cases ended, and how the process died in the next one; empty when it did not die."""
        with tempfile.TemporaryDirectory() as directory:
            events = Path(directory) / "events"
            events.touch()
            order = {
                "homes": dict(homes),
                "cases": [[case.kind, case.promise] for case in self.cases],
                "limit_s": limit_s,
                "events": str(events),
            }
            output = Path(directory) / "output"
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
                line.write(f"{json.dumps(order)}\n".encode())
                line.flush()
                process.wait()
            said = output.read_text(errors="replace")
            begun, last = self._take(events)
        if process.returncode in (0, 1) and begun == len(self.cases) and not last:
            return begun, ""
        return max(begun - 1, 0), _death(process.returncode, last, said)

    def _take(self, events: Path) -> tuple[int, str]:
        """Add what the process wrote. Return how many cases it began, and the test that was running at its end."""
        begun, running = 0, ""
        for line in events.read_text(encoding="utf-8").splitlines():
            number, test, outcome, reason = json.loads(line)
            begun = max(begun, number + 1)
            if outcome == "begun":
                running = test
                continue
            if outcome == "ended":
                running = ""
                continue
            self.results.setdefault(self.cases[number], Result()).add(test, outcome, reason)
        return begun, running


def _death(status: int, test: str, output: str) -> str:
    """Return how a process died."""
    where = f"in {test}" if test else "before any test"
    if "Timeout (" in output:
        return f"hung {where}"
    if status < 0:
        return f"died {where}: {signal.Signals(-status).name}"
    said = [line.strip() for line in output.splitlines() if "Error" in line or line.startswith("E  ")]
    return f"died {where}: exit status {status}" + (f" ({' / '.join(said[:3])})" if said else "")
