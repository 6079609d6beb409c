"""Reads Avro records as rows, with the schema with which they were written: the inverse of `values`."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from cdc_column_texts import SPECIAL_NUMBERS, array_text

from cdc_core import ColumnType, TableSchema, plain_value
from cdc_encoder_avro.schemas import SQL_NAME

_ARROW = {
    "date": pa.date32(),
    "time-micros": pa.time64("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
"""The Arrow types, in a `RowBatch`, of numbers of a logical type."""


class RecordReader:
    """Reads the records of one schema. Logical types are read as numbers, because Python's have a smaller range."""

    def __init__(self, schema: str) -> None:
        written = json.loads(schema)
        self._fields = {field["name"]: field for field in written["fields"]}
        self._parsed = fastavro.parse_schema(_without_logical_types(written))

    def read(self, stream: io.BytesIO) -> dict[str, Any]:
        """Return the next record of *stream*. Raises: ValueError for a damaged record."""
        try:
            record = fastavro.schemaless_reader(stream, self._parsed, None)
        except (EOFError, IndexError, KeyError, OverflowError, MemoryError, struct.error) as error:
            raise ValueError(f"a record is truncated or damaged: {type(error).__name__}: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"not a record: {record!r}")
        return record

    def row(self, schema: TableSchema, record: Mapping[str, Any], name: str) -> dict[str, Any] | None:
        """Return the row in field *name* of an envelope, by the names of its columns."""
        image = record.get(name)
        return None if image is None else _row(schema, image, self._fields[name]["type"][1]["fields"])

    def columns(self, name: str, fields: Collection[str]) -> tuple[str, ...]:
        """Return the names of the columns of *fields*, fields of the row in field *name* of an envelope, in order."""
        if not fields:
            return ()
        every = self._fields[name]["type"][1]["fields"]
        return tuple(field.get(SQL_NAME, field["name"]) for field in every if field["name"] in fields)

    def key(self, schema: TableSchema, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of a message's key."""
        return tuple(_row(schema, record, list(self._fields.values())).values())


def _row(schema: TableSchema, image: Mapping[str, Any], fields: list[dict[str, Any]]) -> dict[str, Any]:
    types = {column.name: column.type for column in schema.columns}
    named = [(field, field.get(SQL_NAME, field["name"])) for field in fields]
    return {name: _value(image[field["name"]], field["type"][1:], types.get(name)) for field, name in named}


def _value(value: Any, branches: list[Any], type_: ColumnType | None) -> Any:
    """Return the value of a column. *type_* is None for a column that the table does not have."""
    if isinstance(value, list):
        (array,) = branches
        items = [_unscaled(item, array["items"][1:]) for item in value]
        if type_ is None or type_.element is None:
            return items
        return array_text(items, type_.element)
    logical = branches[0].get("logicalType") if isinstance(branches[0], dict) else None
    if logical in _ARROW and isinstance(value, int):
        return plain_value(pa.scalar(value, _ARROW[logical]))
    if isinstance(value, str) and type_ is not None:
        return {text: number for number, text in SPECIAL_NUMBERS.get(type_.kind, {}).items()}.get(value, value)
    return _unscaled(value, branches)


def _unscaled(value: Any, branches: list[Any]) -> Any:
    """Return the text of a decimal with all its digits; any other value unchanged."""
    branch = branches[0]
    if not isinstance(value, bytes) or not isinstance(branch, dict) or branch.get("logicalType") != "decimal":
        return value
    number = int.from_bytes(value, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return f"{Decimal((int(number < 0), digits, -branch.get('scale', 0))):f}"


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return [_without_logical_types(item) for item in schema] if isinstance(schema, list) else schema
