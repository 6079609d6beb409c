"""Refusals of a query, a function or a statement: a sentence, and a caret under the place that it is about."""

from __future__ import annotations

from cdc_core.errors import OptionError

_MAX_BEFORE, _MAX_AFTER = 60, 60
"""Characters of a long line that are shown before and after the place."""


def refusal(text: str, at: int, reason: str, *, what: str = "query") -> OptionError:
    """Return the error that refuses *text*, a query, for what it has at offset *at*. *reason* is a sentence."""
    at = min(at, len(text.rstrip()))
    line_number = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : len(text) if end < 0 else end]
    column = at - start
    cut = max(0, column - _MAX_BEFORE)
    shown = line[cut : column + _MAX_AFTER].replace("\t", " ")
    return OptionError(
        f"{what}, line {line_number}, column {column + 1}: {reason}\n  {shown}\n  {' ' * (column - cut)}^"
    )
