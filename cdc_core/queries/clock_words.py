"""Texts of which Spark makes a time by the clock."""

from __future__ import annotations

import re

__all__ = ["CLOCK_WORDS", "TIME_OF_DAY", "clock_word", "no_date"]

CLOCK_WORDS = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
"""What Spark takes for a time when it makes one of a text. Planning finds those that it converts by itself."""
TIME_OF_DAY = re.compile(r"\s*(T\d|\d{1,2}:)")
"""How a text begins for which Spark takes the date of the clock when it makes a timestamp of it."""


def clock_word(text: str) -> str:
    """Return why *text*, one of `CLOCK_WORDS`, is refused."""
    return f"'{text.strip().lower()}' reads the clock; the time of the commit is statement_timestamp()"


def no_date(what: str) -> str:
    """Return why *what*, a time of day, cannot be a timestamp."""
    return (
        f"{what} is a time of day, to which Spark would add the date of the clock; put a date before it, as in"
        " to_timestamp('2000-01-01 ' || time)"
    )
