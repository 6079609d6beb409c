"""JSON texts of the items of arrays, as in a `RowBatch`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from cdc_column_texts.array_items import JSON_KINDS
from cdc_core import ColumnType, Kind

__all__ = ["item_text"]

_SPECIAL_DECIMALS = ("NaN", "Infinity", "-Infinity")
_MIN_PLAIN, _MIN_SCIENTIFIC = -6, 21
"""Numbers between these exponents are written without an exponent."""


def item_text(item: Any, type_: ColumnType) -> str:
    """Return the JSON text of *item*, an item of an array: a number for a date or time, or its text."""
    kind = type_.kind
    if item is None:
        return "null"
    if kind in JSON_KINDS or (kind is Kind.DECIMAL and item not in _SPECIAL_DECIMALS):
        return str(item)
    if kind is Kind.FLOAT:
        return _float(item, type_)
    if kind is Kind.BYTES:
        return json.dumps(f"\\x{item.hex()}")
    if isinstance(item, int) and kind in _DATETIMES:
        return json.dumps(_DATETIMES[kind](item))
    return json.dumps(item, ensure_ascii=False)


def _float(value: float, type_: ColumnType) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    exact = Decimal(str(np.float32(value)) if type_.bits == 32 else repr(value)).normalize()
    if value == 0 or _MIN_PLAIN <= exact.adjusted() < _MIN_SCIENTIFIC:
        return f"{exact:f}"
    sign, digits, _ = exact.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{exact.adjusted():+d}"


def _date(days: int) -> str:
    special = {np.iinfo(np.int32).max: "infinity", np.iinfo(np.int32).min: "-infinity"}
    if days in special:
        return special[days]
    text = str(np.datetime64(days, "D"))
    if not text.startswith("-"):
        return text
    year, month, day = text[1:].split("-")
    return f"-{int(year):04d}-{month}-{day}"


def _time(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _timestamp(us: int) -> str:
    days, rest = divmod(us, 86_400_000_000)
    return f"{_date(days)}T{_time(rest)}"


_DATETIMES: dict[Kind, Callable[[int], str]] = {
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: lambda us: f"{_timestamp(us)}Z",
}
