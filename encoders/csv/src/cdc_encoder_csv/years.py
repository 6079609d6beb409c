"""Years before the year 1: 0 and negative years in ISO 8601, `0001-… BC` and `0002-… BC` in SQL."""

from __future__ import annotations

import re

_ISO = re.compile(r"(-\d{4,}|0000)(-\d\d-\d\d.*)", re.DOTALL)
_SQL = re.compile(r"(\d{4,})(-\d\d-\d\d.*) BC", re.DOTALL)


def sql_year(text: str) -> str:
    """Return a date or timestamp of ISO 8601 in SQL's form; any other text unchanged."""
    found = _ISO.fullmatch(text)
    return text if found is None else f"{1 - int(found[1]):04d}{found[2]} BC"


def iso_year(text: str) -> str:
    """Return a date or timestamp of SQL in the form of ISO 8601; any other text unchanged."""
    found = _SQL.fullmatch(text)
    if found is None:
        return text
    year = 1 - int(found[1])
    return f"{'-' if year < 0 else ''}{abs(year):04d}{found[2]}"
