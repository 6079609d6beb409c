"""Rows and keys as JSON for people: in dead letters, logs and errors. Not for hot paths."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from cdc_core.rows import shown_value
from cdc_core.schema import ColumnType, Kind, TableSchema

_JSON_TEXT = frozenset({Kind.JSON, Kind.ARRAY, Kind.COMPOSITE})
"""Kinds whose values are JSON text already."""
_BYTES = "\\x"


def key_json(schema: TableSchema, key: pa.StructScalar) -> str:
    """Return one entry of a column `key` as a JSON array of its values in key order.

    The identity of a row within its table: two keys of one table are the same exactly when their texts are.
    """
    return "[" + ", ".join(_dumped(shown_value(key[name])) for name in schema.primary_key) + "]"


def row_json(schema: TableSchema, row: pa.StructScalar, *, without: Collection[str] = ()) -> str:
    """Return one entry of a column `after` or `before` as a JSON object in column order; `null` when it is null.

    The columns *without* are left out: their values are unavailable.
    Valid JSON whatever the row holds: what cannot be shown as itself is shown as text.
    """
    if not row.is_valid:
        return "null"
    columns = [column for column in schema.columns if column.name not in without]
    members = (f"{json.dumps(column.name)}: {_member(row[column.name], column.type)}" for column in columns)
    return "{" + ", ".join(members) + "}"


def key_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array | None:
    """Return *values*, of one key column in parsed `key_json` texts, as *type_*; None when they cannot all be read."""
    try:
        if pa.types.is_binary(type_):
            return pa.array([bytes.fromhex(value.removeprefix(_BYTES)) for value in values], type_)
        if pa.types.is_floating(type_):
            return pa.array([float(value) for value in values], type_)
        if pa.types.is_temporal(type_):
            return pa.array(values, pa.string()).cast(type_)
        if pa.types.is_string(type_) and any("\\" in value for value in values):
            return None  # it may stand for a byte that is not UTF-8
        return pa.array(values, type_)
    except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
        return None


def _member(value: pa.Scalar, type_: ColumnType) -> str:
    if type_.kind in _JSON_TEXT and value.is_valid:
        text = str(shown_value(value))
        if is_json(text):
            return text
    return _dumped(shown_value(value))


def is_json(text: str) -> bool:
    """Return whether *text* is JSON in one line, as a message of the encoder json is without a schema registry."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return "\n" not in text and "\r" not in text


def _dumped(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    elif isinstance(value, bytes):
        value = _BYTES + value.hex()
    elif value is not None and not isinstance(value, bool | int | float | str):
        value = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return json.dumps(value, ensure_ascii=False)
