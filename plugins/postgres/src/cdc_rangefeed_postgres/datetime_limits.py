"""The range of PostgreSQL's dates and timestamps, and which of them have no Arrow value."""

from __future__ import annotations

__all__ = ["DATE_EPOCH_DAYS", "FIRST_DAY", "FIRST_TIMESTAMP_US", "TIMESTAMP_EPOCH_US", "OutOfRangeError"]

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
