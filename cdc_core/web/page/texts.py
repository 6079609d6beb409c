"""What the page shows of numbers, times, states and traced changes, and what may be done in each state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from cdc_core.store.reports import Report
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.verbs import RULES, Verb
from cdc_core.timestamp import Timestamp

UNKNOWN = "–"
"""Shown for what is not known."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def age_text(seconds: float | None) -> str:
    """Return a duration in at most two units, such as `1.4 s` and `2 h 05 min`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.0995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02} h"


def bytes_text(size: float | None) -> str:
    """Return a size in the unit in which it has at most four digits."""
    if size is None:
        return UNKNOWN
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 99.95 else f"{size:.1f} {_UNITS[unit]}"


def number_text(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate_text(per_s: float | None) -> str:
    """Return how many rows a second, with one decimal where there are few."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}"


def share_text(share: float) -> str:
    return f"{share:.0%}"


def moment_text(moment: datetime | Timestamp | float | None) -> str:
    """Return a moment to the second, in UTC."""
    return UNKNOWN if not moment else f"{_utc(moment):%Y-%m-%d %H:%M:%S}"


def clock_text(moment: datetime | Timestamp | float | None) -> str:
    """Return the time of a moment in UTC, with tenths of seconds."""
    return UNKNOWN if not moment else f"{_utc(moment):%H:%M:%S.%f}"[:-5]


def _utc(moment: datetime | Timestamp | float) -> datetime:
    if isinstance(moment, float):
        return datetime.fromtimestamp(moment, UTC)
    return (moment.to_datetime() if isinstance(moment, Timestamp) else moment).astimezone(UTC)


def outcome_text(change: TracedChange) -> str:
    """Return what became of a traced change."""
    found = []
    if change.left_out:
        found.append("left out by the query")
    elif change.dead_letter is not None:
        found.append(f"among the dead letters ({change.dead_letter})")
    found += [f"{name} {value}" for name, value in change.place.items()]
    return ", ".join(found if change.complete else [*found, "waits for the next stage"])


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
    if report.job is not None and report.job.rests_for_error:
        return "bad"
    tone = _TONES.get(report.state, "warn")
    return "busy" if tone == "good" and not report.is_alive else tone


def actions_of(report: Report) -> tuple[str, ...]:
    """Return what may be asked for now. What `cdc run` runs can only be paused, while it is alive, and resumed."""
    if report.job is None:
        paused = report.known.paused or report.known.pause_requested
        return ("resume",) if paused else ("pause",) if report.is_alive else ()
    return tuple(action for action in ACTIONS if report.job.state in RULES[action].does)


def note_of(report: Report) -> str:
    """Return in one line what a person should know beside the state; mostly nothing."""
    status = {} if report.status is None else report.status.values
    if report.state == "retrying" and report.retrying is not None:
        return report.retrying.text
    if report.job is not None and report.state == "running" and report.job.node is None:
        return report.running_status
    if report.job is not None and report.state not in ("running", "succeeded", "canceled"):
        return report.job.reason or ""
    if pause := report.known.paused or report.known.pause_requested:
        return pause.reason
    if report.is_alive:
        return str(status.get("notice") or "")
    return str(status.get("error") or "") if report.state == "failed" else ""
