"""The range of PostgreSQL's dates and timestamps, and conversions of single ones.

Those are the ones in arrays, in keys, and in years that Arrow does not read.
"""

from __future__ import annotations

import re
from datetime import date

_DAY_US = 86_400_000_000
DATE_EPOCH_DAYS = 10_957
"""2000-01-01, PostgreSQL's day 0, in days since 1970."""
TIMESTAMP_EPOCH_US = DATE_EPOCH_DAYS * _DAY_US
"""The same in microseconds."""
FIRST_DAY = -2_440_588
"""4714-11-24 BC, PostgreSQL's first day, in days since 1970."""
FIRST_TIMESTAMP_US = FIRST_DAY * _DAY_US
"""The same in microseconds."""


class OutOfRangeError(ValueError):
    """A timestamp is too late for 64 bits of microseconds since 1970. The caller adds the table and the column."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a {what} after the year 294246")


_DATETIME = re.compile(
    r"(?P<year>\d+)-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<clock>(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)(?P<zone>\+00)?)?"
    r"(?P<bc> BC)?"
)
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats after this many years."""
_EPOCH = date(1970, 1, 1)
_SECOND_US = 1_000_000
_LAST_US = 2**63 - 1
_FIRST_OF_CYCLE = 1 - _EPOCH.toordinal()
"""0001-01-01 in days since 1970."""
_INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
_INFINITE_US = {_LAST_US: "infinity", -(2**63): "-infinity"}


def days_since_1970(text: str) -> int:
    """Return the day of a finite date or timestamp."""
    return _days(_parts(text))


def us_since_1970(text: str) -> int:
    """Return the microsecond of a finite timestamp. Raises: OutOfRangeError."""
    parts = _parts(text)
    seconds = (int(parts["hour"]) * 60 + int(parts["minute"])) * 60 + int(parts["second"])
    value = (_days(parts) * 86_400 + seconds) * _SECOND_US + int((parts["fraction"] or "").ljust(6, "0"))
    if value >= _LAST_US:
        raise OutOfRangeError("timestamp")
    return value


def json_date(text: str) -> str:
    """Return the JSON string of a date. Years BC are written as in ISO 8601."""
    if text[-1] != "C":
        return f'"{text}"'
    parts = _parts(text)
    return f'"{_year(parts)}-{parts["month"]}-{parts["day"]}"'


def json_timestamp(text: str) -> str:
    """Return the JSON string of a timestamp; `Z` follows when it has a time zone."""
    if text[-1] == "y":
        return f'"{text}"'
    if text[-1] != "C":
        return f'"{text.replace(" ", "T").replace("+00", "Z")}"'
    parts = _parts(text)
    zone = "Z" if parts["zone"] else ""
    return f'"{_year(parts)}-{parts["month"]}-{parts["day"]}T{parts["clock"]}{zone}"'


def _parts(text: str) -> re.Match[str]:
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date or timestamp of a session with DateStyle ISO and TimeZone UTC")
    return found


def _astronomical(parts: re.Match[str]) -> int:
    return 1 - int(parts["year"]) if parts["bc"] else int(parts["year"])


def _days(parts: re.Match[str]) -> int:
    year = _astronomical(parts)
    cycles = (year - 1) // _CYCLE_YEARS
    within = date(year - cycles * _CYCLE_YEARS, int(parts["month"]), int(parts["day"]))
    return (within - _EPOCH).days + cycles * _CYCLE_DAYS


def _year(parts: re.Match[str]) -> str:
    year = _astronomical(parts)
    return f"-{-year:04d}" if year < 0 else f"{year:04d}"


def sql_date(days: int) -> str:
    """Return the SQL text of days since 1970. The greatest and the least int32 are infinities."""
    if days in _INFINITE_DAYS:
        return _INFINITE_DAYS[days]
    cycles, day = divmod(days - _FIRST_OF_CYCLE, _CYCLE_DAYS)
    within = date.fromordinal(day + 1)
    year = within.year + cycles * _CYCLE_YEARS
    text = f"{year if year > 0 else 1 - year:04d}-{within.month:02d}-{within.day:02d}"
    return text if year > 0 else f"{text} BC"


def sql_time(us: int) -> str:
    """Return the SQL text of microseconds since midnight."""
    seconds, fraction = divmod(us, _SECOND_US)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def sql_timestamp(us: int, zone: str) -> str:
    """Return the SQL text of microseconds since 1970 with *zone*. The greatest and the least int64 are infinities."""
    if us in _INFINITE_US:
        return _INFINITE_US[us]
    days, clock = divmod(us, 86_400 * _SECOND_US)
    day, era, _ = sql_date(days).partition(" BC")
    return f"{day} {sql_time(clock)}{zone}{era}"
