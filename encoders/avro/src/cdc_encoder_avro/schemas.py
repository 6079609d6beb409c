"""The Avro schemas of a table's messages and files.

Every field of every record is a union that begins with null, and has the default null. Therefore any two schemas of a
table can read each other's data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from cdc_core import UNAVAILABLE_MEMBER, Column, Envelope, RowPlace, TableSchema
from cdc_encoder_avro.enriched import source_fields
from cdc_encoder_avro.names import avro_name, avro_namespace, avro_type_name
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.types import branches
from cdc_encoder_avro.unavailable import UNAVAILABLE_TYPE

DEFINITION = "__crdb__"
"""Property of a field: the definition of the column in SQL, with the source's name of its type, as in CockroachDB."""
SQL_NAME = "sql_name"
"""Property of a field or record: the name of the column or table, when that is not an Avro name."""
_ROW_FIELDS = {RowPlace.MEMBER: "after", RowPlace.MESSAGE: "record"}
_FIELDS = (
    *("before", "after", "updated", "mvcc_timestamp", "resolved", "record", "source", "ts_ns", "op"),
    *("key", "topic", UNAVAILABLE_MEMBER),
)
"""Every field that the record of an envelope can have, in CockroachDB's order. The last three are our own."""
_SOURCE = "source"
"""Name of the record that says where rows come from."""
_BARE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
"""Names that need no quotes in SQL."""


def key_schema(schema: TableSchema, options: AvroOptions) -> dict[str, Any]:
    """Return the record of the key, in key order.

    A key contains the id of its schema, so another schema would give a row another key and partition. Therefore it has
    no definitions, and a column of a wider type has the same schema.
    """
    return _Records(schema, options).key("")


def row_field(envelope: Envelope) -> str | None:
    """Return the field of the envelope record that holds the row after the change; None when there is none."""
    return _ROW_FIELDS.get(envelope.row)


def envelope_fields(envelope: Envelope, *, resolved: bool, unavailable: bool) -> list[str]:
    """Return the fields of the envelope record in their order. `envelope_schema` explains the arguments."""
    present = {row_field(envelope), *envelope.images, *envelope.metadata}
    present |= {name for name, wanted in (("resolved", resolved), (UNAVAILABLE_MEMBER, unavailable)) if wanted}
    return [name for name in _FIELDS if name in present]


def envelope_schema(
    schema: TableSchema,
    topic: str,
    *,
    envelope: Envelope,
    options: AvroOptions,
    resolved: bool,
    unavailable: bool = False,
) -> dict[str, Any]:
    """Return the record of a message's value, or of a row in a file.

    With *resolved* it has the field `resolved`, which is null in all rows. A reader that uses this schema for the whole
    topic can then recognize resolved marks. With *unavailable* it has the field for rows that lack values.
    """
    records = _Records(schema, options)
    names = envelope_fields(envelope, resolved=resolved, unavailable=unavailable)
    fields = {name: records.source(envelope) if name == "source" else records.field(name) for name in names}
    return _envelope(topic, options, fields)


def resolved_schema(topic: str, options: AvroOptions) -> dict[str, Any]:
    """Return the record of a resolved mark. It has the name of the envelope, so that one subject can hold both."""
    return _envelope(topic, options, {"resolved": "string"})


def schema_text(schema: dict[str, Any]) -> str:
    """Return *schema* as JSON. The same schema always has the same text."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


class _Records:
    """The records of one table in one schema. The first use of a named type defines it."""

    def __init__(self, schema: TableSchema, options: AvroOptions) -> None:
        self._schema = schema
        self._options = options
        self._defined: set[str] = set()

    def field(self, name: str) -> Any:
        """Return the type of an envelope's field."""
        if name == "key":
            return self.key("_key")
        if name == "ts_ns":
            return "long"
        if name == UNAVAILABLE_MEMBER:
            return UNAVAILABLE_TYPE
        if name in _ROW_FIELDS.values():
            return self._record("", self._schema.columns)
        return self._record("_before", self._schema.columns) if name == "before" else "string"

    def key(self, suffix: str) -> dict[str, Any]:
        """Return the record of the key. In a value it has another name than the record of the row."""
        return self._record(suffix, self._schema.key_columns, definitions=False)

    def source(self, envelope: Envelope) -> dict[str, Any]:
        """Return the record that says where rows come from: `source`, which the record of a table may be called too."""
        taken = avro_name(self._schema.name.table) == _SOURCE
        return {
            **_named({"type": "record"}, _SOURCE, suffix=f"_{_SOURCE}" if taken else "", options=self._options),
            "fields": source_fields(envelope),
        }

    def _record(self, suffix: str, columns: Iterable[Column], *, definitions: bool = True) -> dict[str, Any]:
        table = self._schema.name.table
        record = _named({"type": "record"}, table, suffix=suffix, options=self._options)
        record["fields"] = [self._field(column, definition=definitions) for column in columns]
        return record

    def _field(self, column: Column, *, definition: bool) -> dict[str, Any]:
        name = avro_name(column.name)
        enum = f"{avro_name(self._schema.name.table)}_{name}_enum"
        union = ["null", *(self._once(branch) for branch in branches(column.type, self._options, enum_name=enum))]
        field = {"name": name, "type": union, "default": None}
        if definition:
            field[DEFINITION] = _definition(column)
        return field if name == column.name else {**field, SQL_NAME: column.name}

    def _once(self, branch: Any) -> Any:
        """Return *branch*, or its name when it is a named type that was defined before."""
        if not isinstance(branch, dict):
            return branch
        if branch["type"] == "array":
            return {**branch, "items": [self._once(item) for item in branch["items"]]}
        if branch["type"] != "enum":
            return branch
        if branch["name"] in self._defined:
            return branch["name"]
        self._defined.add(branch["name"])
        return branch


def _definition(column: Column) -> str:
    """Return the definition of *column*, without NOT NULL: a source need not report when that changes."""
    name = column.name if _BARE_NAME.fullmatch(column.name) else '"' + column.name.replace('"', '""') + '"'
    return f"{name} {column.type.source}"


def _envelope(topic: str, options: AvroOptions, fields: dict[str, Any]) -> dict[str, Any]:
    record = _named({"type": "record"}, topic, suffix="_envelope", options=options)
    record["fields"] = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in fields.items()]
    return record


def _named(type_: dict[str, Any], name: str, *, suffix: str, options: AvroOptions) -> dict[str, Any]:
    """Return *type_* with its name and the namespace, which its inner types inherit."""
    named = {**type_, "name": avro_type_name(name, suffix)}
    namespace = avro_namespace(options.avro_schema_prefix)
    if namespace:
        named["namespace"] = namespace
    return named if named["name"] == f"{name}{suffix}" else {**named, SQL_NAME: name}
