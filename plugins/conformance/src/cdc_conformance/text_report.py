"""Outcomes as text for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from cdc_conformance.outcomes import Outcome
from cdc_conformance.promises import words
from cdc_conformance.report import Report, versions

__all__ = ["alike", "failure_lines", "outcome_line", "summary_lines"]

LABELS = {
    "passed": "PASS",
    "failed": "FAIL",
    "error": "ERROR",
    "skipped": "SKIP",
    "xfailed": "XFAIL",
    "not_declared": "N/A",
}
_COUNTED = {
    "passed": "kept",
    "failed": "broken",
    "error": "not tested because of an error",
    "xfailed": "overridden with a reason",
    "skipped": "skipped",
    "not_declared": "not declared",
}
_WIDTH = 100


def outcome_line(outcome: Outcome) -> str:
    """Return a promise and its outcome in one line. `failure_lines` gives the reasons of failures."""
    line = f"{LABELS[outcome.outcome]:<5}  {words(outcome.name)}"
    if outcome.outcome in ("skipped", "xfailed", "not_declared"):
        return f"{line}: {' '.join(outcome.reason.split())}"
    return line


def failure_lines(outcome: Outcome, *, again: str = "") -> Iterator[str]:
    """Yield the contract of a promise and what was seen instead. *again* is the command that tests it again."""
    yield f"{LABELS[outcome.outcome]}  {words(outcome.name)}  ({outcome.name})"
    if outcome.contract:
        yield "  the promise:"
        yield from textwrap.indent(outcome.contract, "    ").splitlines()
    yield "  what was seen:" if outcome.outcome == "failed" else "  it was not tested because of an error:"
    for line in outcome.reason.splitlines():
        yield from _wrapped(line)
    if again:
        yield f"  again: {again}"


def alike(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Return each broken promise in a list of its own, and promises that failed with one error in one list."""
    found: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.outcome in ("failed", "error"):
            known = outcome.name if outcome.outcome == "failed" else ("error", outcome.reason)
            found.setdefault(known, []).append(outcome)
    return list(found.values())


def summary_lines(report: Report) -> Iterator[str]:
    """Yield the result of the run: counts, capabilities and versions."""
    for proof, outcomes in report.suites():
        origin = f"{proof.distribution} {proof.version}" if proof.distribution else "no installed distribution"
        counts = Counter(outcome.outcome for outcome in outcomes)
        said = [f"{counts[name]} {word}" for name, word in _COUNTED.items() if counts[name] or word == "kept"]
        yield f"{proof.kind} '{proof.name}' of {origin}: {', '.join(said)}"
        undeclared = f"; not declared: {', '.join(proof.undeclared)}" if proof.undeclared else ""
        yield f"  capabilities: {', '.join(proof.capabilities) or 'none'}{undeclared}"
        reasons = [outcome.reason for outcome in outcomes if outcome.outcome == "not_declared"]
        for reason, count in Counter(reasons).items():
            if not reason.startswith("needs the capability "):
                yield f"  {count} not applicable: {reason}"
    yield ", ".join(f"{name} {version}" for name, version in versions().items())
    if report.deselected:
        yield f"{report.deselected} deselected"


def _wrapped(line: str) -> list[str]:
    """Return *line* in lines that fit a terminal. Lines of a traceback stay unchanged."""
    if line.startswith(" ") or not line:
        return [f"    {line}".rstrip()]
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
