"""JSON Schemas (draft-07) of what the encoder writes: of keys, and of values in each envelope.

They allow exactly the fields that are written, so that a column more is a compatible change; none of them is required,
and columns that are not of the key may always be null, since a source need not say when that changes. Texts of a
schema are canonical: the same table gives the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core import ColumnType, EnvelopeOptions, Kind, TableSchema
from cdc_encoder_json.objects import METADATA

__all__ = ["allows_resolved", "key_schema", "resolved_schema", "value_schema"]

_Schema = dict[str, Any]
_DIALECT = "http://json-schema.org/draft-07/schema#"
_TEXT: _Schema = {"type": "string"}
_DATE = "-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_TIMESTAMP: _Schema = {"type": "string", "pattern": r"^[0-9]+\.[0-9]{10}$"}
_NUMBERS: tuple[_Schema, ...] = ({"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]})
_NULL: _Schema = {"type": "null"}


def _matching(pattern: str) -> tuple[_Schema, ...]:
    return ({"type": "string", "pattern": f"^({pattern})$"},)


_CHOICES: dict[Kind, tuple[_Schema, ...]] = {
    Kind.BOOL: ({"type": "boolean"},),
    Kind.INT: ({"type": "integer"},),
    Kind.FLOAT: _NUMBERS,
    Kind.DECIMAL: _NUMBERS,
    Kind.BYTES: _matching(r"\\x([0-9a-f]{2})*"),
    Kind.UUID: _matching("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    # no formats: "date-time" has neither infinities, nor years beyond 9999, nor times without a zone
    Kind.DATE: _matching(f"{_DATE}|-?infinity"),
    Kind.TIME: _matching(_CLOCK),
    Kind.TIMESTAMP: _matching(f"{_DATE}T{_CLOCK}|-?infinity"),
    Kind.TIMESTAMPTZ: _matching(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    Kind.COMPOSITE: ({"type": "object"},),
}
"""What a value may be that is not null, one of these. Kinds that are missing are texts.

So are enums: a label can be added to a type at any time, without a new version of the table's schema.
"""


def key_schema(schema: TableSchema) -> str:
    """Return the schema of the keys of *schema*'s rows."""
    items = [_column(schema.column(name).type, nullable=False) for name in schema.primary_key]
    return _text(f"{schema.name.table}_key", _key(items))


def value_schema(schema: TableSchema, options: EnvelopeOptions) -> str | None:
    """Return the schema of the values of *schema*'s rows and of resolved marks beside them, None for empty values."""
    if options.envelope == "key_only":
        return None
    columns = {column.name: _column(column.type, nullable=True) for column in sorted(schema.columns, key=_name)}
    metadata = _metadata(schema, options)
    if options.envelope == "wrapped":
        row = _one_of(_NULL, _object(columns))
        images = {"after": row, **({"before": row} if options.diff else {})}
        return _text(f"{schema.name.table}_envelope", _object(images | metadata))
    return _text(schema.name.table, _object({METADATA: _object(metadata)} | columns))


def resolved_schema(options: EnvelopeOptions) -> str:
    """Return the schema of resolved marks alone, for topics without rows; that of rows can follow it."""
    mark = _object({"resolved": _TIMESTAMP})
    return _text("resolved", mark if options.envelope == "wrapped" else _object({METADATA: mark}))


def allows_resolved(schema: str, options: EnvelopeOptions) -> bool:
    """Return whether a registered *schema* is one of ours that has a place for resolved marks."""
    try:
        fields = json.loads(schema)["properties"]
        return "resolved" in (fields if options.envelope == "wrapped" else fields[METADATA]["properties"])
    except (ValueError, LookupError, TypeError):
        return False


def _metadata(schema: TableSchema, options: EnvelopeOptions) -> dict[str, _Schema]:
    fields: dict[str, _Schema] = {}
    if options.key_in_value:
        fields["key"] = _key([_column(schema.column(name).type, nullable=False) for name in schema.primary_key])
    if options.mvcc_timestamp:
        fields["mvcc_timestamp"] = _TIMESTAMP
    fields["resolved"] = _TIMESTAMP
    if options.topic_in_value:
        fields["topic"] = _TEXT
    if options.updated:
        fields["updated"] = _TIMESTAMP
    return fields


def _column(type_: ColumnType, *, nullable: bool) -> _Schema:
    """Return the schema of a column, with the source's name of its type for people."""
    choices = _choices(type_)
    schema = {} if choices is None else _one_of(*([_NULL] if nullable else []), *choices)
    return {"description": type_.source, **schema}


def _choices(type_: ColumnType) -> Sequence[_Schema] | None:
    """Return what a value that is not null may be; None when it may be anything."""
    if type_.kind is Kind.JSON:
        return None
    if type_.kind is not Kind.ARRAY:
        return _CHOICES.get(type_.kind, (_TEXT,))
    element = None if type_.element is None else _choices(type_.element)
    if element is None:
        return ({"type": "array"},)
    # the arrays within are those of more dimensions
    return ({"type": "array", "items": _one_of(_NULL, *element, {"type": "array"})},)


def _key(items: list[_Schema]) -> _Schema:
    bounds = {"minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "items": items, "additionalItems": False, **bounds}


def _object(fields: Mapping[str, _Schema]) -> _Schema:
    return {"type": "object", "properties": dict(fields), "additionalProperties": False}


def _one_of(*schemas: _Schema) -> _Schema:
    return schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}


def _text(title: str, schema: _Schema) -> str:
    return json.dumps({"$schema": _DIALECT, "title": title, **schema}, ensure_ascii=False, separators=(",", ":"))


def _name(column: Any) -> str:
    return str(column.name)
