"""All outcomes of a run, as a document for programs.

    {"schema": 1,
     "versions": {"cdc-core": "0.1.0", "cdc-conformance": "0.1.0", "pytest": "9.0.0", "python": "3.12.1"},
     "counts": {"passed": 40, "failed": 1, "error": 0, "skipped": 0, "xfailed": 0, "not_declared": 3, "deselected": 0},
     "suites": [{"suite": "tests/test_sink.py::TestShelf", "kind": "sink", "name": "shelf",
                 "distribution": {"name": "acme-shelf", "version": "1.2"},
                 "capabilities": ["idempotent"], "undeclared": ["stall"], "counts": {…},
                 "promises": [{"name": "test_flush_is_a_barrier", "topic": "Delivery", "outcome": "passed",
                               "reason": "", "seconds": 0.012, "contract": "…"}, …]}]}

`outcome` is one of the words in `counts`:

    passed         the component keeps the promise
    failed         it breaks the promise
    error          a fixture failed, so the promise was not tested
    skipped        the test skipped itself
    xfailed        the test class overrides the promise
    not_declared   the component does not declare the capability, or its registration lacks what the promise is about

`reason` explains all but the first. `deselected` counts promises that the command line excluded. New keys may be added;
`schema` increases when a key is removed or changes its meaning.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cdc_conformance.outcomes import Outcome, Proof

__all__ = ["Report", "versions"]

SCHEMA = 1
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "not_declared")


class Report:
    """Collects the outcomes of a run in the order in which they arrive."""

    def __init__(self) -> None:
        self.deselected = 0
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a phase of a promise to those of its earlier phases."""
        key = (outcome.proof.suite, outcome.name)
        known = self._outcomes.get(key)
        self._outcomes[key] = outcome if known is None else known.then(outcome)

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def suites(self) -> Iterator[tuple[Proof, list[Outcome]]]:
        """Yield the suites of the run, each with its outcomes."""
        proofs = {outcome.proof.suite: outcome.proof for outcome in self._outcomes.values()}
        for name, proof in proofs.items():
            yield proof, [outcome for (suite, _), outcome in self._outcomes.items() if suite == name]

    def document(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        return {
            "schema": SCHEMA,
            "versions": versions(),
            "counts": {**_counts(self.outcomes()), "deselected": self.deselected},
            "suites": [_suite(proof, outcomes) for proof, outcomes in self.suites()],
        }

    def write(self, path: Path) -> None:
        """Write the document to *path*."""
        path.write_text(json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Return the versions of Python, pytest and our packages."""
    found = {}
    for name in ("cdc-core", "cdc-conformance", "pytest"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return {**found, "python": platform.python_version()}


def _suite(proof: Proof, outcomes: list[Outcome]) -> dict[str, Any]:
    shown = asdict(proof)
    distribution = {"name": shown.pop("distribution"), "version": shown.pop("version")}
    promises = [asdict(outcome) | {"seconds": round(outcome.seconds, 4)} for outcome in outcomes]
    for promise in promises:
        del promise["proof"]
    return {**shown, "distribution": distribution, "counts": _counts(outcomes), "promises": promises}


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    counts = dict.fromkeys(OUTCOMES, 0)
    for outcome in outcomes:
        counts[outcome.outcome] += 1
    return counts
