"""Expressions that read the clock although they name none: of a text that is no whole time, Spark makes one by it."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.errors import PySparkException

from cdc_core.queries.functions import TIME_OF_DAY, no_date
from cdc_core.spark.private_api import JavaObject, Py4JError, items
from cdc_core.spark.query_refusals import typed_columns

__all__ = ["clock_reading"]

_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_CLOCK_WORD = re.compile(r"(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_NAME_OF_ZONE = re.compile(r"[A-Za-z]{2}")
"""In a text of a time of day: the hour in UTC then depends on the date, for summer time."""
_OF_THE_TIME = frozenset({"Hour", "Minute", "Second", "SecondWithFraction"})
"""Expressions of a timestamp, in UTC, that do not depend on its date."""
_FORMATTED = "DateFormatClass"
_NO_LETTER_OF_A_TIME = re.compile(r"[^\W\d_HhKkmsSa]")
"""A letter in a pattern of `date_format` that shows something else than the time."""


def clock_reading(expression: JavaObject, times: Collection[str], *, only_time: bool = False) -> str:
    """Return why *expression* reads the clock: it makes a time of 'today', or of a time of day without a date.

    Spark does so wherever it needs a time, as in day < 'today', and for what it can compute beforehand. The columns
    *times* are times of day. With *only_time*, the date of what *expression* gives does not matter. Empty when it does
    not read the clock.
    """
    if expression.nodeName() == "Cast" and expression.dataType().typeName() in _TIME_TYPES:
        text, of_zone = expression.child(), expression.dataType().typeName() == "timestamp"
        constant = _constant(text) if text.dataType().typeName() == "string" else ""
        if found := _CLOCK_WORD.match(constant):
            return f"'{found[0].lower()}' reads the clock; the time of the commit is statement_timestamp()"
        adds_date = of_zone and not only_time
        if (adds_date or (of_zone and _NAME_OF_ZONE.search(constant))) and TIME_OF_DAY.match(constant):
            return no_date(f"'{constant}'")
        column = next(iter(typed_columns(text.sql())), None) if text.nodeName() == "GetStructField" else None
        if adds_date and column in times:
            return no_date(f"column {column}")
    only_time = _shows_only_the_time(expression)
    found_below = (clock_reading(child, times, only_time=only_time) for child in items(expression.children()))
    return next(filter(None, found_below), "")


def _shows_only_the_time(expression: JavaObject) -> bool:
    if expression.nodeName() in _OF_THE_TIME:
        return True
    if expression.nodeName() != _FORMATTED:
        return False
    pattern = _constant(expression.right())
    return bool(pattern) and not _NO_LETTER_OF_A_TIME.search(pattern)


def _constant(text: JavaObject) -> str:
    """Return the value of a text that is the same for all rows; empty for others, and where it cannot be computed."""
    try:
        value = text.eval(None) if text.foldable() else None
    except (Py4JError, PySparkException):
        return ""
    return "" if value is None else str(value.toString().strip())
