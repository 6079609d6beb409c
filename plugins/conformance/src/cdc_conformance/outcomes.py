"""The outcome of one promise, as a value for people and programs."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import _pytest
import pluggy
import pytest

from cdc_conformance.promises import DoesNotApply, suite_of

__all__ = ["Outcome", "Proof", "outcome_of", "topic_of"]

_INTERNALS = (
    *(str(Path(module.__file__ or "").parent) for module in (_pytest, pluggy, pytest)),
    *(str(Path(__file__).with_name(name)) for name in ("verification.py", "limits.py", "sabotage")),
)
"""Path prefixes of files whose frames do not help the author of a plugin."""
_SHOWN_FRAMES = 8
_BADNESS = ("passed", "not_declared", "skipped", "xfailed", "error", "failed")


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
    """One promise; `cdc_conformance.report` says what the outcomes mean."""

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
