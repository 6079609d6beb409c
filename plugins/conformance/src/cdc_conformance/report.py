"""All outcomes of a run, as a document for programs.

    {"schema": 1,
     "versions": {"cdc-core": "0.1.0", "cdc-conformance": "0.1.0", "pytest": "9.0.0", "python": "3.12.1"},
     "counts": {"passed": 40, "failed": 1, "error": 0, "skipped": 3, "xfailed": 0, "deselected": 0},
     "suites": [{"suite": "tests/test_sink.py::TestShelf", "kind": "sink", "name": "shelf",
                 "distribution": {"name": "acme-shelf", "version": "1.2"},
                 "capabilities": ["idempotent"], "undeclared": ["stall"], "counts": {…},
                 "promises": [{"name": "test_flush_is_a_barrier", "topic": "Delivery", "outcome": "passed",
                               "reason": "", "seconds": 0.012, "contract": "…"}, …]}]}

`outcome` is one of the words of `counts`: *failed* broke the promise, *error* could not be asked for it, *skipped* was
not asked (its `reason` says why), *xfailed* was given up by the test class with a `reason`. *deselected* were left out
by whoever ran the tests. New keys may be added; a key that is removed or means something else gives a new `schema`.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cdc_conformance.outcomes import Outcome, Proof

__all__ = ["OUTCOMES", "Report", "versions"]

SCHEMA = 1
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")


class Report:
    """Collects the outcomes of a run in the order in which they come."""

    def __init__(self) -> None:
        self.deselected = 0
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def add(self, outcome: Outcome) -> Outcome:
        """Take note of a phase of a promise; return what is known of the promise now."""
        key = (outcome.proof.suite, outcome.name)
        known = self._outcomes.get(key)
        self._outcomes[key] = outcome if known is None else known.then(outcome)
        return self._outcomes[key]

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def proofs(self) -> list[Proof]:
        """Return the suites that ran; a suite's capabilities are known once one of its promises was asked for."""
        found: dict[str, Proof] = {}
        for outcome in self._outcomes.values():
            known = found.get(outcome.proof.suite)
            if known is None or not (known.capabilities or known.undeclared):
                found[outcome.proof.suite] = outcome.proof
        return list(found.values())

    def broken(self) -> bool:
        """Return whether a promise is broken or could not be asked for."""
        return any(outcome.outcome in ("failed", "error") for outcome in self._outcomes.values())

    def of(self, proof: Proof) -> list[Outcome]:
        """Return the outcomes of one suite."""
        return [outcome for outcome in self._outcomes.values() if outcome.proof.suite == proof.suite]

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values; the module says how they look."""
        return {
            "schema": SCHEMA,
            "versions": versions(),
            "counts": {**_counts(self.outcomes()), "deselected": self.deselected},
            "suites": [self._suite(proof) for proof in self.proofs()],
        }

    def write(self, path: Path) -> None:
        """Write the document to *path*."""
        path.write_text(json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _suite(self, proof: Proof) -> dict[str, Any]:
        outcomes = self.of(proof)
        return {
            "suite": proof.suite,
            "kind": proof.kind,
            "name": proof.name,
            "distribution": {"name": proof.origin.distribution, "version": proof.origin.version},
            "capabilities": list(proof.capabilities),
            "undeclared": list(proof.undeclared),
            "counts": _counts(outcomes),
            "promises": [
                {
                    "name": outcome.name,
                    "topic": outcome.topic,
                    "outcome": outcome.outcome,
                    "reason": outcome.reason,
                    "seconds": round(outcome.seconds, 4),
                    "contract": outcome.contract,
                }
                for outcome in outcomes
            ],
        }


def versions() -> dict[str, str]:
    """Return the versions of what took part, except the component's own."""
    found = {}
    for name in ("cdc-core", "cdc-conformance", "pytest"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return {**found, "python": platform.python_version()}


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    counts = dict.fromkeys(OUTCOMES, 0)
    for outcome in outcomes:
        counts[outcome.outcome] += 1
    return counts
