"""Numbers, times and what became of changes, as the page shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from cdc_core.store.traced_change import TracedChange
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
