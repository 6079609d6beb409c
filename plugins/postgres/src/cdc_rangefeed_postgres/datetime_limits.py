"""Where PostgreSQL's dates and timestamps begin and end, and what of them is out of ours."""

from __future__ import annotations

__all__ = ["DATE_EPOCH_DAYS", "DAY_US", "FIRST_DAY", "FIRST_TIMESTAMP_US", "TIMESTAMP_EPOCH_US", "OutOfRangeError"]

DAY_US = 86_400_000_000
DATE_EPOCH_DAYS = 10_957
"""2000-01-01, PostgreSQL's day 0, in days since 1970."""
TIMESTAMP_EPOCH_US = DATE_EPOCH_DAYS * DAY_US
"""The same in microseconds."""
FIRST_DAY = -2_440_588
"""4714-11-24 BC, the first day that PostgreSQL knows, in days since 1970."""
FIRST_TIMESTAMP_US = FIRST_DAY * DAY_US
"""The same in microseconds."""


class OutOfRangeError(ValueError):
    """A timestamp lies after what 64 bits of microseconds since 1970 can say. The caller names table and column."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a {what} after the year 294246")
