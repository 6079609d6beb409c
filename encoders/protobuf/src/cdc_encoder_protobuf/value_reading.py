"""Reads messages `Value` as the values of a `RowBatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from cdc_column_texts import column_of_texts, item_text

from cdc_core import ColumnType, Kind, TableSchema, plain_value

__all__ = ["read_row"]

_TEXTS = {
    ("date_value", Kind.DATE),
    ("time_value", Kind.TIME),
    ("string_value", Kind.TIMESTAMP),
    ("string_value", Kind.TIMESTAMPTZ),
}
"""The fields that hold the text of a value whose kind has numbers in Arrow."""
_STAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


def read_row(schema: TableSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a map of messages `Value`, in table order; columns that the table lacks are last.

    Raises: ValueError for a text that is not a value of its column's type.
    """
    types = {column.name: column.type for column in (*schema.key, *schema.columns)}
    names = [name for name in types if name in values]
    names += sorted(name for name in values if name not in types)
    return {name: _read(values[name], types.get(name)) for name in names}


def _read(value: Any, type_: ColumnType | None) -> Any:
    """Return a value of a column; *type_* is None for a column that the table lacks."""
    field, plain = _plain(value)
    if field == "array_value":
        element = None if type_ is None else type_.element
        if element is None:
            return [_read(item, None) for item in plain]
        return f"[{', '.join(item_text(_item(item, element), element) for item in plain)}]"
    if field == "timestamp_value":
        known = type_ is not None and type_.kind in _STAMPS
        return plain_value(pa.scalar(plain, type_.arrow if known and type_ else pa.timestamp("us", "UTC")))
    if type_ is not None and (field, type_.kind) in _TEXTS:
        return plain_value(column_of_texts(pa.array([plain], pa.string()), type_)[0])
    return plain


def _item(value: Any, element: ColumnType) -> Any:
    """Return an item of an array as `item_text` takes it."""
    field, plain = _plain(value)
    return [_item(item, element) for item in plain] if field == "array_value" else plain


def _plain(value: Any) -> tuple[str | None, Any]:
    """Return the field that is set and what it holds; a Timestamp in microseconds, a Decimal as text."""
    field = value.WhichOneof("value")
    if field is None:
        return None, None
    held = getattr(value, field)
    if field == "timestamp_value":
        return field, held.seconds * 1_000_000 + held.nanos // 1000
    if field == "decimal_value":
        return field, held.value
    if field == "array_value":
        return field, held.values
    return field, held
