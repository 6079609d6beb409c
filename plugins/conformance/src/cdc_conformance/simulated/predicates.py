"""The predicates of rescans in the simulated database: `column < value`, with `=`, `<` or `>`; the value is JSON."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from cdc_core import ConfigError

__all__ = ["Predicate", "parse"]

Predicate = Callable[[Mapping[str, Any]], bool]

_FORM = re.compile(r"\s*(\w+)\s*([=<>])\s*(.+?)\s*")
_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt}


def parse(text: str) -> tuple[str, Predicate]:
    """Return the column that *text* names, and whether a row has such a value in it. Raises: ConfigError."""
    found = _FORM.fullmatch(text)
    try:
        value: Any = None if found is None else json.loads(found[3])
    except json.JSONDecodeError:
        found = None
    if found is None:
        raise ConfigError(f"'{text}' is no predicate of the simulated database; write one such as id < 5")
    column, compare = found[1], _COMPARE[found[2]]

    def holds(row: Mapping[str, Any]) -> bool:
        return row.get(column) is not None and bool(compare(row[column], value))

    return column, holds
