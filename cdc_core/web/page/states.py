"""States as the page shows them: how urgent each is, and what may be done about it."""

from __future__ import annotations

from typing import Literal

from cdc_core.store.reports import Report
from cdc_core.store.verbs import RULES, Verb

Tone = Literal["good", "busy", "rest", "warn", "bad"]

_TONES: dict[str, Tone] = {
    "running": "good",
    "retrying": "warn",
    "new": "busy",
    "pause-requested": "busy",
    "cancel-requested": "busy",
    "reverting": "busy",
    "paused": "warn",
    "waiting": "warn",
    "silent": "bad",
    "failed": "bad",
    "revert-failed": "bad",
    "unknown": "warn",
    "stopped": "rest",
    "canceled": "rest",
    "succeeded": "rest",
    "complete": "rest",
}
ACTIONS: tuple[Verb, ...] = tuple(verb for verb, rule in RULES.items() if rule.actions == (verb,))
"""What people may ask for, in the order of the buttons."""
FOR_ADMINS = ("alter", "cancel")
"""Those that take the role admin."""


def tone_of(report: Report) -> Tone:
    """Return how urgent the state is: one that runs without a node is not well, and a pause may be due to an error."""
    if report.job is not None and report.job.job.rests_for_error:
        return "bad"
    tone = _TONES.get(report.state, "warn")
    return "busy" if tone == "good" and not report.is_alive else tone


def actions_of(report: Report) -> tuple[str, ...]:
    """Return what may be asked for now. What `cdc run` runs can only be paused, while it is alive, and resumed."""
    if report.job is None:
        paused = report.known.paused or report.known.pause_requested
        return ("resume",) if paused else ("pause",) if report.is_alive else ()
    return tuple(action for action in ACTIONS if report.job.job.state in RULES[action].does)


def note_of(report: Report) -> str:
    """Return in one line what a person should know beside the state; mostly nothing."""
    status = {} if report.status is None else report.status.values
    if report.state == "retrying" and report.retrying is not None:
        return report.retrying.text
    if report.job is not None and report.state == "running" and report.job.job.node is None:
        return report.job.running_status
    if report.job is not None and report.state not in ("running", "succeeded", "canceled"):
        return report.job.job.reason or ""
    if pause := report.known.paused or report.known.pause_requested:
        return pause.reason
    if report.is_alive:
        return str(status.get("notice") or "")
    return str(status.get("error") or "") if report.state == "failed" else ""
