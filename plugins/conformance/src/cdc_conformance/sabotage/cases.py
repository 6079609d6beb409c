"""Which saboteurs there are, and what their runs must look like."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_conformance.components import registration_of
from cdc_conformance.promises import promises_of, suite_of
from cdc_core.errors import PluginLoadError
from cdc_core.plugins.classes import load_class
from cdc_core.registrations import Registration

__all__ = ["HOMES", "Case", "Kind", "Result", "chosen", "kinds", "verdict"]

HOMES = {
    "sink": "cdc_conformance.sabotage.sinks",
    "history": "cdc_conformance.sabotage.histories",
    "encoder": "cdc_conformance.sabotage.encoders",
    "rangefeed": "cdc_conformance.sabotage.rangefeeds",
}
"""By kind, the module with its saboteurs. Those of histories are sinks too."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a suite: against the saboteur of *promise*, or against the reference, whose promise is empty."""

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
    """Promises of the suite that another kind of saboteurs breaks; here they are not asked for."""

    @property
    def promises(self) -> tuple[str, ...]:
        names = promises_of(suite_of(self.suite) or self.suite)
        return tuple(name for name in names if name not in self.elsewhere)

    @property
    def summaries(self) -> frozenset[str]:
        """Promises that another's saboteur may break too."""
        return self.suite.summaries  # type: ignore[no-any-return]

    def cases(self) -> list[Case]:
        """Return the reference and one case for each promise, whether it has a saboteur or not, and each saboteur."""
        names = dict.fromkeys([*self.promises, *self.saboteurs])
        return [Case(self.name), *(Case(self.name, promise) for promise in names)]

    def suite_for(self, case: Case, name: str) -> type[Any]:
        """Return the suite to run for *case* as a test class called *name*."""
        members = {self.suite.kind: self.saboteurs[case.promise]} if case.promise else {}
        return type(name, (self.suite,), members)

    def saboteur(self, case: Case) -> tuple[str, str]:
        """Return the saboteur's class name and what it stands for, the first paragraph of its docstring."""
        if not case.promise:
            return registration_of(self.suite, self.suite.kind).target.partition(":")[2], ""
        registration = self.saboteurs.get(case.promise)
        if registration is None:
            return "-", ""
        reference = registration_of(self.suite, self.suite.kind)
        history = getattr(registration, "history", "")
        target = history if history != getattr(reference, "history", "") else registration.target
        try:
            cls = load_class(target, owner=f"saboteur of {case.promise}")
        except PluginLoadError as error:
            return target.partition(":")[2], str(error)
        paragraph = (cls.__doc__ or "").strip().partition("\n\n")[0]
        return cls.__name__, " ".join(paragraph.split())


@dataclass(slots=True)
class Result:
    """What became of the tests of one case, by test without parameters; the worst where one has several."""

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

    def unasked(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome in ("skipped", "xfailed")]


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
    """Return what is wrong with a case, nothing when it is as it must be."""
    if case.promise and case.promise not in kind.saboteurs:
        return "has no saboteur: nothing proves that the test can fail"
    if case.promise and case.promise not in kind.promises:
        return "there is no such promise"
    if result is None:
        return "did not run"
    if result.died:
        return result.died
    missing = sorted(set(kind.promises) - result.outcomes.keys())
    if missing:
        return f"did not run {_listed(missing)}"
    failed = set(result.failed()) - kind.elsewhere
    wanted = {case.promise} if case.promise else set()
    problems = []
    if wanted - failed:
        problems.append("fails nothing" if not failed else "does not fail its own test")
    unwanted = sorted(failed - wanted - (kind.summaries if case.promise else frozenset()))
    if unwanted:
        problems.append(f"fails {'also ' if wanted & failed else ''}{_listed(unwanted)}")
    unasked = [test for test in result.unasked() if test == case.promise or not case.promise]
    unasked = [test for test in unasked if test not in kind.elsewhere]
    if unasked:
        problems.append(f"skips {_listed(unasked)}")
    return "; ".join(problems)


def chosen(cases: Iterable[Case], promise: str) -> list[Case]:
    """Return the cases to run for one *promise* alone: all those of that name."""
    name = promise if promise.startswith("test_") else f"test_{promise.replace(' ', '_')}"
    return [case for case in cases if case.promise == name]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
