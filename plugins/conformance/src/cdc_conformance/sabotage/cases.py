"""The saboteurs, the runs of the suites against them in processes that may die, and the table that shows all."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_conformance.components import registration_of
from cdc_conformance.promises import conditions_of, promises_of, suite_of
from cdc_core.registrations import Registration

__all__ = ["HOMES", "Case", "Kind", "Result", "Row", "chosen", "kinds", "lines", "rows", "run", "verdict"]

HOMES = {
    "sink": "cdc_conformance.sabotage.sinks",
    "history": "cdc_conformance.sabotage.histories",
    "encoder": "cdc_conformance.sabotage.encoders",
    "rangefeed": "cdc_conformance.sabotage.rangefeeds",
    "function": "cdc_conformance.sabotage.functions",
}
"""The module of each kind of saboteurs. Those of histories are sinks too."""
_HEAD = ("KIND", "PROMISE", "SABOTEUR", "FAILED", "VERDICT", "MISTAKE")


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a suite, against the saboteur of *promise*; with an empty promise, against the reference."""

    kind: str
    promise: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.promise or 'reference'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The saboteurs of one kind."""

    name: str
    suite: type[Any]
    """The suite with the reference component."""
    saboteurs: Mapping[str, Registration]
    elsewhere: frozenset[str] = frozenset()
    """Promises of the suite that saboteurs of another kind break. They are not tested here."""

    @property
    def promises(self) -> tuple[str, ...]:
        names = promises_of(suite_of(self.suite) or self.suite)
        return tuple(name for name in names if name not in self.elsewhere)

    @property
    def summaries(self) -> frozenset[str]:
        """Promises that saboteurs of other promises may break too."""
        return self.suite.summaries  # type: ignore[no-any-return]

    def cases(self) -> list[Case]:
        """Return one case for the reference, for each promise with or without a saboteur, and for each saboteur."""
        names = dict.fromkeys([*self.promises, *self.saboteurs])
        return [Case(self.name), *(Case(self.name, promise) for promise in names)]

    def promises_for(self, case: Case) -> set[str]:
        """Return the promises that apply to the registration of *case*."""
        conditions = {name: conditions_of(self.suite, name) for name in self.promises}
        cls = self.suite_for(case, "Suite") if any(conditions.values()) else self.suite
        return {name for name, several in conditions.items() if all(condition.holds(cls) for condition in several)}

    def suite_for(self, case: Case, name: str) -> type[Any]:
        """Return the suite to run for *case*, as a test class called *name*."""
        members = {self.suite.kind: self.saboteurs[case.promise]} if case.promise else {}
        return type(name, (self.suite,), members)

    def saboteur(self, case: Case) -> tuple[str, str]:
        """Return the name of what is broken and its mistake: the class, and the summary of its registration."""
        reference = registration_of(self.suite, self.suite.kind)
        registration = self.saboteurs.get(case.promise, None if case.promise else reference)
        if registration is None:
            return "-", ""
        fields = (*reference.CLASSES, "options")
        changed = [field for field in fields if getattr(registration, field) != getattr(reference, field)]
        target: str = getattr(registration, (changed or fields)[0])
        return target.partition(":")[2], registration.summary if case.promise else ""


@dataclass(slots=True)
class Result:
    """The outcomes of one case, by test without parameters. Of several parameters the worst outcome counts."""

    outcomes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    died: str = ""
    """How the process ended in the middle of the case, if it did."""

    def add(self, test: str, outcome: str, reason: str) -> None:
        name = test.partition("[")[0]
        if outcome in ("failed", "error") or name not in self.outcomes:
            self.outcomes[name] = outcome
            self.reasons[name] = reason

    def failed(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in ("failed", "error")]

    def not_tested(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in ("skipped", "xfailed", "not_declared")]


def kinds(homes: Mapping[str, str] = HOMES, *, only: Collection[str] = ()) -> dict[str, Kind]:
    """Return the saboteurs of all kinds, or of those in *only*."""
    found = {}
    for name, home in homes.items():
        if not only or name in only:
            module = importlib.import_module(home)
            elsewhere: frozenset[str] = getattr(module, "ELSEWHERE", frozenset())
            found[name] = Kind(name=name, suite=module.SUITE, saboteurs=dict(module.SABOTEURS), elsewhere=elsewhere)
    return found


def verdict(case: Case, kind: Kind, result: Result | None) -> str:
    """Return what is wrong with a case; empty when nothing is."""
    if case.promise and case.promise not in kind.saboteurs:
        return "has no saboteur, so nothing proves that the test can fail"
    if case.promise and case.promise not in kind.promises:
        return "breaks a promise that does not exist"
    if result is None:
        return "did not run"
    if result.died:
        return result.died
    missing = sorted(kind.promises_for(case) - result.outcomes.keys())
    if missing:
        return f"did not run {_listed(missing)}"
    failed = set(result.failed()) - kind.elsewhere
    wanted = {case.promise} if case.promise else set()
    problems = []
    if wanted - failed:
        problems.append("does not fail its own test" if failed else "fails no test")
    unwanted = sorted(failed - wanted - (kind.summaries if case.promise else frozenset()))
    if unwanted:
        problems.append(f"fails {'also ' if wanted & failed else ''}{_listed(unwanted)}")
    skipped = [test for test in result.not_tested() if test == case.promise or not case.promise]
    skipped = [test for test in skipped if test not in kind.elsewhere]
    if skipped:
        problems.append(f"skips {_listed(skipped)}")
    return "; ".join(problems)


def chosen(cases: Iterable[Case], promise: str) -> list[Case]:
    """Return the cases of one *promise*, given as the name of its test or in words."""
    name = promise if promise.startswith("test_") else f"test_{promise.replace(' ', '_')}"
    return [case for case in cases if case.promise == name]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case in the table. `problem` is empty when nothing is wrong."""

    case: Case
    saboteur: str
    mistake: str
    failed: str
    problem: str
    reasons: tuple[str, ...] = ()
    """The failure texts of the tests that should have passed."""


def rows(cases: Sequence[Case], results: Mapping[Case, Result], kinds: Mapping[str, Kind]) -> list[Row]:
    """Return a row for each case."""
    return [_row(case, results.get(case), kinds[case.kind]) for case in cases]


def lines(found: Sequence[Row]) -> Iterator[str]:
    """Yield the table, then what is wrong, then the counts."""
    cells = [_HEAD, *(_cells(row) for row in found)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD) - 1)]
    for line in cells:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
    wrong = [row for row in found if row.problem]
    yield ""
    for row in wrong:
        yield f"{row.case} ({row.saboteur}): {row.problem}"
        yield from (f"    {reason}" for reason in row.reasons)
    saboteurs = sum(1 for row in found if row.case.promise)
    counts = f"{saboteurs} saboteurs and {len(found) - saboteurs} references"
    yield f"{counts}: {f'{len(wrong)} wrong' if wrong else 'all right'}"


def _row(case: Case, result: Result | None, kind: Kind) -> Row:
    saboteur, mistake = kind.saboteur(case)
    failed = [] if result is None else result.failed()
    allowed = {case.promise, *(kind.summaries if case.promise else ())}
    unwanted = [test for test in failed if test not in allowed]
    return Row(
        case=case,
        saboteur=saboteur,
        mistake=mistake,
        failed="its own" if case.promise in failed and not unwanted else ", ".join(failed) or "-",
        problem=verdict(case, kind, result),
        reasons=tuple(f"{test}: {' '.join(result.reasons[test].split())[:400]}" for test in unwanted if result),
    )


def _cells(row: Row) -> tuple[str, ...]:
    failed = row.failed if row.failed.count(",") < 1 else f"{row.failed.count(',') + 1} tests"
    return (
        row.case.kind,
        row.case.promise or "(all: reference)",
        row.saboteur,
        failed,
        "WRONG" if row.problem else "ok",
        row.mistake,
    )


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
