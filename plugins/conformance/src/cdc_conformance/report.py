"""The outcomes of promises, as text for people and as a document for programs, which the README describes."""

from __future__ import annotations

import json
import platform
import textwrap
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import _pytest
import pluggy
import pytest

from cdc_conformance.promises import DoesNotApply, suite_of, words

_INTERNALS = (
    *(str(Path(module.__file__ or "").parent) for module in (_pytest, pluggy, pytest)),
    *(str(Path(__file__).with_name(name)) for name in ("verification.py", "limits.py", "sabotage")),
)
"""Path prefixes of files whose frames do not help the author of a plugin."""
_SHOWN_FRAMES = 8
_BADNESS = ("passed", "not_declared", "skipped", "xfailed", "error", "failed")
SCHEMA = 1
_WORDS = {
    "passed": ("PASS", "kept"),
    "failed": ("FAIL", "broken"),
    "error": ("ERROR", "not tested because of an error"),
    "xfailed": ("XFAIL", "overridden with a reason"),
    "skipped": ("SKIP", "skipped"),
    "not_declared": ("N/A", "not declared"),
}
"""The label of each outcome, and what several promises with this outcome are."""
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The component that a suite tests."""

    suite: str
    """The node ID of the test class."""
    kind: str
    name: str
    distribution: str | None = None
    """The one that registers it; None for a registration of the test itself."""
    version: str | None = None
    capabilities: Sequence[str] = ()
    undeclared: Sequence[str] = ()
    """The capabilities that the kind has and the component does not declare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One promise; the README says what the outcomes mean."""

    name: str
    topic: str
    contract: str
    outcome: str = "passed"
    reason: str = ""
    seconds: float = 0.0
    proof: Proof = field(repr=False)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Outcome:
        """Return the outcome whose `asdict` is *value*."""
        return cls(**{**value, "proof": Proof(**value["proof"])})

    def then(self, later: Outcome) -> Outcome:
        """Return the outcome of two phases of one test: the worse one, or the earlier one if both are equal."""
        worse = later if _BADNESS.index(later.outcome) > _BADNESS.index(self.outcome) else self
        return replace(worse, seconds=self.seconds + later.seconds, proof=later.proof)


def outcome_of(
    report: pytest.TestReport, call: pytest.CallInfo[None], *, waived: str | None, blank: Outcome
) -> Outcome:
    """Return *blank* with the outcome of *report*. *waived* is the reason why the promise is overridden, if it is."""
    outcome, reason = "passed", ""
    if report.failed:
        outcome = "error" if report.when == "setup" else "failed"
        reason = _failure_sentence(call) or str(report.longrepr)
    elif hasattr(report, "wasxfail"):
        outcome, reason = "xfailed", str(report.wasxfail).removeprefix("reason: ")
    elif report.skipped:
        error = None if call.excinfo is None else call.excinfo.value
        inapplicable = isinstance(error, DoesNotApply)
        outcome, reason = ("not_declared", str(error)) if inapplicable else ("skipped", _skip_reason(report))
    elif waived is not None and report.when == "call":
        outcome, reason = "xfailed", waived
    return replace(blank, outcome=outcome, reason=reason, seconds=report.duration)


def _failure_sentence(call: pytest.CallInfo[None]) -> str:
    """Return why a test failed: the message of its assertion, or the error with frames of the plugin."""
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return _sentence(str(error))
    shown = "".join(traceback.format_exception_only(error)).rstrip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_of_pytest(frame)]
    if not frames:
        return shown
    return f"{shown}\n{''.join(traceback.format_list(frames[-_SHOWN_FRAMES:])).rstrip()}"


def topic_of(cls: type, test: str) -> str:
    """Return the topic of a promise: the name of the suite's class that defines it, in words."""
    suite = suite_of(cls) or cls
    owner = next((base for base in suite.__mro__ if test in vars(base)), cls)
    letters = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in owner.__name__.lstrip("_"))
    return letters.strip().capitalize()


def _sentence(text: str) -> str:
    """Return the message of an assertion without the values that pytest adds."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if number and line.startswith("assert "):
            return "\n".join([lines[0], *(each.removeprefix("  ") for each in lines[1:number])]).rstrip()
    return text


def _skip_reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")


def _is_of_pytest(frame: traceback.FrameSummary) -> bool:
    """Return whether *frame* does not help the author of a plugin: it is pytest's, or a hook of one of its plugins."""
    return frame.filename.startswith(_INTERNALS) or frame.name.startswith("pytest_")


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
    counts = dict.fromkeys(_WORDS, 0)
    for outcome in outcomes:
        counts[outcome.outcome] += 1
    return counts


def outcome_line(outcome: Outcome) -> str:
    """Return a promise and its outcome in one line. `failure_lines` gives the reasons of failures."""
    line = f"{_WORDS[outcome.outcome][0]:<5}  {words(outcome.name)}"
    if outcome.outcome in ("skipped", "xfailed", "not_declared"):
        return f"{line}: {' '.join(outcome.reason.split())}"
    return line


def failure_lines(outcome: Outcome, *, again: str) -> Iterator[str]:
    """Yield the contract of a promise and what was seen instead. *again* is the command that tests it again."""
    yield f"{_WORDS[outcome.outcome][0]}  {words(outcome.name)}  ({outcome.name})"
    if outcome.contract:
        yield "  the promise:"
        yield from textwrap.indent(outcome.contract, "    ").splitlines()
    yield "  observed:" if outcome.outcome == "failed" else "  it was not tested because of an error:"
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
        said = [f"{counts[name]} {word}" for name, (_, word) in _WORDS.items() if counts[name] or word == "kept"]
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
        line, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
