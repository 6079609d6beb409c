"""Kafka Connect schemas of keys and values, for `enriched_properties = 'schema'`.

Connect's JsonConverter reads messages with them. Names are CockroachDB's. Columns that are not in the key may always be
null, because a source need not report when that changes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cdc_core import SOURCE_MEMBERS, UNAVAILABLE_MEMBER, Column, ColumnType, Envelope, Kind, TableSchema

_Schema = dict[str, Any]
_STRING, _INT64 = "string", "int64"
_TYPES: dict[Kind, _Schema] = {
    Kind.BOOL: {"type": "boolean"},
    Kind.INT: {"type": _INT64},
    Kind.FLOAT: {"type": "double"},
    Kind.BYTES: {"type": _STRING, "name": "bytes"},
    Kind.DATE: {"type": _STRING, "name": "date"},
    Kind.TIME: {"type": _STRING, "name": "time"},
    Kind.TIMETZ: {"type": _STRING, "name": "time"},
    Kind.TIMESTAMP: {"type": _STRING, "name": "timestamp"},
    Kind.TIMESTAMPTZ: {"type": _STRING, "name": "timestamp"},
    Kind.JSON: {"type": _STRING, "name": "json"},
    Kind.ARRAY: {"type": _STRING, "name": "json"},
    Kind.COMPOSITE: {"type": _STRING, "name": "json"},
}
"""Schemas of values that are not null. Kinds that are missing are texts; decimals and most arrays have parameters."""
_AS_TEXT = frozenset({Kind.JSON, Kind.COMPOSITE})
"""Kinds whose values have any form, which Connect does not know."""


def written_type(type_: ColumnType) -> ColumnType:
    """Return the type as which a column is written: values of any form are texts of JSON, as Connect has no such type.

    An array has the form of its items only in one dimension, see `RowTexts`.
    """
    any_form = type_.kind in _AS_TEXT or (type_.kind is Kind.ARRAY and not _has_items(type_))
    return replace(type_, kind=Kind.STRING, element=None) if any_form else type_


def key_schema(schema: TableSchema, *, nullable: bool = False) -> str:
    """Return the schema of the keys of *schema*'s rows, whose values may be null if they are *nullable*."""
    return _text(_key(schema, optional=nullable))


def value_schema(schema: TableSchema, envelope: Envelope, *, unavailable: bool) -> str:
    """Return the schema of the values of *schema*'s rows; with *unavailable*, of those that lack columns."""
    table = schema.name.table
    columns = [_field(column, optional=True) for column in schema.columns]
    special: dict[str, _Schema] = {
        "before": _struct(f"{table}.before.value", columns, optional=True),
        "after": _struct(f"{table}.after.value", columns, optional=True),
        "source": _struct("cockroachdb.source", _source(envelope), optional=True),
        "key": _key(schema, optional=False),
        "ts_ns": {"type": _INT64, "optional": False},
        "topic": {"type": _STRING, "optional": False},
        "op": {"type": _STRING, "optional": False},
        UNAVAILABLE_MEMBER: {"type": "array", "items": {"type": _STRING, "optional": False}, "optional": True},
    }
    present = {*envelope.images, *envelope.metadata, *([UNAVAILABLE_MEMBER] if unavailable else [])}
    fields = [{**member, "field": name} for name, member in special.items() if name in present]
    return _text(_struct("cockroachdb.envelope", fields, optional=False))


def _key(schema: TableSchema, *, optional: bool) -> _Schema:
    fields = [_field(column, optional=optional) for column in schema.key_columns]
    return _struct(f"{schema.name.table}.key", fields, optional=False)


def _source(envelope: Envelope) -> list[_Schema]:
    types: dict[str, _Schema] = {
        "primary_keys": {"type": "array", "items": {"type": _STRING, "optional": False}},
        "ts_ns": {"type": _INT64},
    }
    times = envelope.source_times
    return [
        {"field": name, **types.get(name, {"type": _STRING}), "optional": name in times}
        for name in sorted((*SOURCE_MEMBERS, *times))
    ]


def _field(column: Column, *, optional: bool) -> _Schema:
    return {**_type(column.type), "field": column.name, "optional": optional}


def _type(type_: ColumnType) -> _Schema:
    if type_.kind is Kind.DECIMAL:
        return _decimal(type_)
    if type_.kind is Kind.ARRAY and type_.element is not None and _has_items(type_):
        return {"type": "array", "items": {**_type(type_.element), "optional": True}}
    return _TYPES.get(type_.kind, {"type": _STRING})


def _decimal(type_: ColumnType) -> _Schema:
    """Return Connect's exact decimal, which needs a scale; without one, a double as in CockroachDB."""
    digits = type_.decimal_digits
    if digits is None:
        return {"type": "double", "name": "decimal"}
    parameters = {"connect.decimal.precision": str(digits[0]), "scale": str(digits[1])}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}


def _has_items(type_: ColumnType) -> bool:
    return type_.element is not None and type_.element.kind not in _AS_TEXT | {Kind.ARRAY}


def _struct(name: str, fields: Sequence[_Schema], *, optional: bool) -> _Schema:
    return {"type": "struct", "name": name, "fields": list(fields), "optional": optional}


def _text(schema: _Schema) -> str:
    return json.dumps(schema, ensure_ascii=False, sort_keys=True)
