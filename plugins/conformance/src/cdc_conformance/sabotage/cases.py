"""The saboteurs, what each of them must fail, and the table that shows it."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_conformance.components import registration_of
from cdc_conformance.promises import conditions_of, promises_of, suite_of
from cdc_core.options import counted
from cdc_core.registrations import Registration

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
    """One run of a suite, against a saboteur of *promise*; with an empty promise, against the reference.

    A promise with several saboteurs has one in brackets: `test_flush_is_a_barrier[leaves_rows_to_close]`.
    """

    kind: str
    promise: str = ""

    @property
    def test(self) -> str:
        """The name of the promise's test."""
        return self.promise.partition("[")[0]

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
        """Return one case for the reference, for each promise without a saboteur, and for each saboteur."""
        broken = {Case(self.name, name).test for name in self.saboteurs}
        names = [*self.saboteurs, *(promise for promise in self.promises if promise not in broken)]
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
    if case.promise and case.test not in kind.promises:
        return "breaks a promise that does not exist"
    if result is None:
        return "did not run"
    if result.died:
        return result.died
    applicable = kind.promises_for(case)
    missing = sorted(applicable - result.outcomes.keys())
    if missing:
        return f"did not run {', '.join(missing)}"
    failed = set(result.failed()) - kind.elsewhere
    wanted = {case.test} if case.promise else set()
    problems = []
    if wanted - failed:
        problems.append("does not fail its own test" if failed else "fails no test")
    unwanted = sorted(failed - wanted - (kind.summaries if case.promise else frozenset()))
    if unwanted:
        problems.append(f"fails {'also ' if wanted & failed else ''}{', '.join(unwanted)}")
    skipped = [test for test in result.not_tested() if test == case.test or not case.promise]
    skipped = [test for test in skipped if test in applicable - kind.elsewhere]
    if skipped:
        problems.append(f"skips {', '.join(skipped)}")
    return "; ".join(problems)


def chosen(cases: Iterable[Case], promise: str) -> list[Case]:
    """Return the cases of one *promise*, given as the name of its test or in words."""
    name = promise if promise.startswith("test_") else f"test_{promise.replace(' ', '_')}"
    return [case for case in cases if name in (case.promise, case.test)]


def lines(results: Mapping[Case, Result], problems: Mapping[Case, str], kinds: Mapping[str, Kind]) -> Iterator[str]:
    """Yield the table, then what is wrong, then the counts. *problems* has the verdict of each case."""
    cells, wrong = [_HEAD], []
    for case, problem in problems.items():
        kind, result = kinds[case.kind], results.get(case, Result())
        saboteur, mistake = kind.saboteur(case)
        failed = result.failed()
        unwanted = [test for test in failed if test != case.test and not (case.promise and test in kind.summaries)]
        shown = ", ".join(failed) if len(failed) < 2 else f"{len(failed)} tests"
        shown = "its own" if case.test in failed and not unwanted else shown or "-"
        label = "WRONG" if problem else "ok"
        cells.append((case.kind, case.promise or "(all: reference)", saboteur, shown, label, mistake))
        if problem:
            wrong.append(f"{case} ({saboteur}): {problem}")
            wrong += [f"    {test}: {' '.join(result.reasons[test].split())[:400]}" for test in unwanted]
    widths = [max(map(len, column)) for column in list(zip(*cells, strict=True))[:-1]]
    for line in cells:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
    yield from ["", *wrong]
    saboteurs, count = sum(1 for case in problems if case.promise), sum(map(bool, problems.values()))
    said = f"{count} wrong" if count else "all right"
    references = counted(len(problems) - saboteurs, "reference")
    yield f"{counted(saboteurs, 'saboteur')} and {references}: {said}"
