"""Outcomes as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from cdc_conformance.outcomes import Outcome, Proof
from cdc_conformance.promises import words
from cdc_conformance.report import Report, versions

__all__ = ["alike", "failure_lines", "outcome_line", "summary_lines"]

LABELS = {"passed": "PASS", "failed": "FAIL", "error": "ERROR", "skipped": "SKIP", "xfailed": "XFAIL"}
_WIDTH = 100


def outcome_line(outcome: Outcome) -> str:
    """Return one line that says what became of a promise; a reason is left to `failure_lines` where it is broken."""
    line = f"{LABELS[outcome.outcome]:<5}  {words(outcome.name)}"
    return f"{line}: {' '.join(outcome.reason.split())}" if outcome.outcome in ("skipped", "xfailed") else line


def failure_lines(outcome: Outcome, *, again: str = "") -> Iterator[str]:
    """Yield what a promise says and what was seen instead; *again* is the command that asks for it once more."""
    yield f"{LABELS[outcome.outcome]}  {words(outcome.name)}  ({outcome.name})"
    if outcome.contract:
        yield "  the promise:"
        yield from textwrap.indent(outcome.contract, "    ").splitlines()
    yield "  what was seen:" if outcome.outcome == "failed" else "  it could not be asked for:"
    for line in outcome.reason.splitlines():
        yield from _wrapped(line)
    if again:
        yield f"  again: {again}"


def alike(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Return the broken promises, each by itself, and those that one fault kept from being asked for together."""
    found: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.outcome in ("failed", "error"):
            known = outcome.name if outcome.outcome == "failed" else ("error", outcome.reason)
            found.setdefault(known, []).append(outcome)
    return list(found.values())


def summary_lines(report: Report) -> Iterator[str]:
    """Yield what the run came to: counts, capabilities and versions."""
    for proof in report.proofs():
        yield f"{proof.kind} '{proof.name}' of {proof.origin}: {_counted(report, proof)}"
        yield f"  capabilities: {', '.join(proof.capabilities) or 'none'}{_undeclared(proof)}"
    yield ", ".join(f"{name} {version}" for name, version in versions().items())
    if report.deselected:
        yield f"{report.deselected} promises were not chosen to run; this proves only the others"


def _wrapped(line: str) -> list[str]:
    """Return *line* in lines that a terminal holds; those of a traceback stay as they are."""
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


def _counted(report: Report, proof: Proof) -> str:
    outcomes = [outcome.outcome for outcome in report.of(proof)]
    parts = [
        (outcomes.count("passed"), "kept"),
        (outcomes.count("failed"), "broken"),
        (outcomes.count("error"), "could not be asked for"),
        (outcomes.count("xfailed"), "given up with a reason"),
        (outcomes.count("skipped"), "not asked for"),
    ]
    return ", ".join(f"{count} {word}" for count, word in parts if count or word == "kept")


def _undeclared(proof: Proof) -> str:
    return f"; not declared: {', '.join(proof.undeclared)}" if proof.undeclared else ""
