"""JSON Schemas (draft-07) of keys and of values in each envelope.

A schema allows exactly the members that are written and requires none, so that adding a column is compatible. Columns
that are not in the key may always be null, because a source need not report when that changes. The text of a schema is
canonical: the same table gives the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core import SOURCE_MEMBERS, UNAVAILABLE_MEMBER, ColumnType, Envelope, Kind, RowPlace, TableSchema

_Schema = dict[str, Any]
_DIALECT = "http://json-schema.org/draft-07/schema#"
_TEXT: _Schema = {"type": "string"}
_TEXTS: _Schema = {"type": "array", "items": _TEXT}
_INTEGER: _Schema = {"type": "integer"}
_DATE = "-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_TIMESTAMP: _Schema = {"type": "string", "pattern": r"^[0-9]+\.[0-9]{10}$"}
_NUMBERS: tuple[_Schema, ...] = ({"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]})
_NULL: _Schema = {"type": "null"}
DESCRIPTION = "description"
"""Property of a column in a value: the source's name of its type."""


def _matching(pattern: str) -> tuple[_Schema, ...]:
    return ({"type": "string", "pattern": f"^({pattern})$"},)


_CHOICES: dict[Kind, tuple[_Schema, ...]] = {
    Kind.BOOL: ({"type": "boolean"},),
    Kind.INT: ({"type": "integer"},),
    Kind.FLOAT: _NUMBERS,
    Kind.DECIMAL: _NUMBERS,
    Kind.BYTES: _matching(r"\\x([0-9a-f]{2})*"),
    Kind.UUID: _matching("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    # Formats are not used: "date-time" excludes infinities, years after 9999 and times without a zone.
    Kind.DATE: _matching(f"{_DATE}|-?infinity"),
    Kind.TIME: _matching(_CLOCK),
    Kind.TIMESTAMP: _matching(f"{_DATE}T{_CLOCK}|-?infinity"),
    Kind.TIMESTAMPTZ: _matching(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    Kind.COMPOSITE: ({"type": "object"},),
}
"""Schemas of a value that is not null, which matches one of them. Kinds that are missing are texts.

Enums are texts too: a label can be added at any time without a new version of the table's schema.
"""


def key_schema(schema: TableSchema, envelope: Envelope, *, nullable: bool = False) -> str:
    """Return the schema of the keys of *schema*'s rows, whose values may be null if they are *nullable*.

    A key contains the id of its schema, so another schema would give a row another key and partition. Therefore it does
    not name the source's types, and a column of a wider type has the same schema.
    """
    return _text(f"{schema.name.table}_key", _key(schema, envelope, nullable=nullable))


def value_schema(schema: TableSchema, envelope: Envelope) -> str | None:
    """Return the schema of the values of *schema*'s rows and of their resolved marks; None when values are empty."""
    if envelope.row is RowPlace.NOWHERE:
        return None
    table = schema.name.table
    columns = {
        column.name: {DESCRIPTION: column.type.source, **_column(column.type, nullable=True)}
        for column in sorted(schema.columns, key=_name)
    }
    special: dict[str, _Schema] = {
        "key": _key(schema, envelope, nullable=False),
        "op": {"type": "string", "enum": ["c", "u", "d"]},
        "source": _source(envelope),
        "topic": _TEXT,
        "ts_ns": _INTEGER,
        UNAVAILABLE_MEMBER: _TEXTS,
    }
    always = ("resolved", UNAVAILABLE_MEMBER)
    metadata = {name: special.get(name, _TIMESTAMP) for name in sorted((*envelope.metadata, *always))}
    members = envelope.placed(metadata, _object)
    if envelope.row is RowPlace.MESSAGE:
        return _text(table, _object(members | columns))
    image = _one_of(_NULL, _object(columns))
    return _text(f"{table}_envelope", _object(dict.fromkeys(envelope.images, image) | members))


def resolved_schema(envelope: Envelope) -> str:
    """Return the schema of resolved marks alone, for a topic without rows. The schema of rows is compatible with it."""
    return _text("resolved", _object(envelope.placed({"resolved": _TIMESTAMP}, _object)))


def allows_resolved(schema: str, envelope: Envelope) -> bool:
    """Return whether a registered *schema* is one of ours that allows resolved marks."""
    try:
        members = json.loads(schema)["properties"]
        return "resolved" in envelope.split(members, lambda member: member.get("properties"))[2]
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _column(type_: ColumnType, *, nullable: bool) -> _Schema:
    """Return the schema of a column's values."""
    choices = _choices(type_)
    return {} if choices is None else _one_of(*([_NULL] if nullable else []), *choices)


def _choices(type_: ColumnType) -> Sequence[_Schema] | None:
    """Return the schemas of a value that is not null; None when it may be anything."""
    if type_.kind is Kind.JSON:
        return None
    if type_.kind is not Kind.ARRAY:
        return _CHOICES.get(type_.kind, (_TEXT,))
    inner = type_.element
    element = None if inner is None or inner.kind is Kind.ARRAY else _choices(inner)
    if element is None:
        return ({"type": "array"},)
    # The inner arrays are further dimensions.
    return ({"type": "array", "items": _one_of(_NULL, *element, {"type": "array"})},)


def _source(envelope: Envelope) -> _Schema:
    members = dict.fromkeys(SOURCE_MEMBERS, _TEXT) | dict.fromkeys(envelope.source_times, _TIMESTAMP)
    return _object({**members, "primary_keys": _TEXTS, **({"ts_ns": _INTEGER} if "ts_ns" in members else {})})


def _key(schema: TableSchema, envelope: Envelope, *, nullable: bool) -> _Schema:
    if envelope.enriched:
        return _object({column.name: _column(column.type, nullable=nullable) for column in schema.key_columns})
    items = [_column(column.type, nullable=nullable) for column in schema.key_columns]
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
