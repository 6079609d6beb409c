"""The Avro schemas of a table's messages and files.

Every field of every record is a union of null and something else with the default null, so that any two schemas of a
table can read one another's data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cdc_core import EnvelopeOptions, TableSchema
from cdc_core.schema import Column
from cdc_encoder_avro.names import avro_name, avro_namespace
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.types import branches

__all__ = ["ROWS", "SQL_NAME", "SQL_TYPE", "envelope_schema", "key_schema", "resolved_schema", "schema_text"]

ROWS = {"wrapped": "after", "bare": "record", "key_only": None}
"""The field of the envelope that has the row, by the envelope's name."""
SQL_TYPE = "sql_type"
"""Property of a field: the source's own name of the column's type."""
SQL_NAME = "sql_name"
"""Property of a field or record: the name of the column or table, where it is no Avro name."""


def key_schema(schema: TableSchema, options: AvroOptions) -> dict[str, Any]:
    """Return the record of the primary key, in key order."""
    return _Records(schema, options).key()


def envelope_schema(
    schema: TableSchema, topic: str, *, envelope: EnvelopeOptions, options: AvroOptions, resolved: bool
) -> dict[str, Any]:
    """Return the record of a message's value, or of a row in a file.

    With *resolved* it has the field of that name, which is null in all rows: a reader that uses this schema for the
    whole topic then sees which messages are resolved marks.
    """
    records = _Records(schema, options)
    row = ROWS[envelope.envelope]
    fields: dict[str, Any] = {}
    if envelope.diff:
        fields["before"] = records.row("_before")
    if row == "after":
        fields["after"] = records.row("")
    if envelope.updated:
        fields["updated"] = "string"
    if envelope.mvcc_timestamp:
        fields["mvcc_timestamp"] = "string"
    if resolved:
        fields["resolved"] = "string"
    if row == "record":
        fields["record"] = records.row("")
    if envelope.key_in_value:
        fields["key"] = records.key()
    if envelope.topic_in_value:
        fields["topic"] = "string"
    return _envelope(topic, options, fields)


def resolved_schema(topic: str, options: AvroOptions) -> dict[str, Any]:
    """Return the record of a resolved mark. It has the envelope's name, so that one subject can hold both."""
    return _envelope(topic, options, {"resolved": "string"})


def schema_text(schema: dict[str, Any]) -> str:
    """Return *schema* as JSON, always the same text for the same schema."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


class _Records:
    """The records of one table in one schema; each named type is spelled out where it first stands."""

    def __init__(self, schema: TableSchema, options: AvroOptions) -> None:
        self._schema = schema
        self._options = options
        self._defined: set[str] = set()

    def row(self, suffix: str) -> dict[str, Any]:
        return self._record(suffix, self._schema.columns)

    def key(self) -> dict[str, Any]:
        return self._record("_key", [self._schema.column(name) for name in self._schema.primary_key])

    def _record(self, suffix: str, columns: Iterable[Column]) -> dict[str, Any]:
        table = self._schema.name.table
        record = _named({"type": "record"}, table, suffix=suffix, options=self._options)
        record["fields"] = [self._field(column) for column in columns]
        return record

    def _field(self, column: Column) -> dict[str, Any]:
        name = avro_name(column.name)
        enum = f"{avro_name(self._schema.name.table)}_{name}_enum"
        union = ["null", *(self._once(branch) for branch in branches(column.type, self._options, enum_name=enum))]
        field = {"name": name, "type": union, "default": None, SQL_TYPE: column.type.source}
        return field if name == column.name else {**field, SQL_NAME: column.name}

    def _once(self, branch: Any) -> Any:
        """Return *branch* with a named type that was spelled out before replaced by its name."""
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


def _envelope(topic: str, options: AvroOptions, fields: dict[str, Any]) -> dict[str, Any]:
    record = _named({"type": "record"}, topic, suffix="_envelope", options=options)
    record["fields"] = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in fields.items()]
    return record


def _named(type_: dict[str, Any], name: str, *, suffix: str, options: AvroOptions) -> dict[str, Any]:
    """Return *type_* with its name, and the namespace, which the types within it inherit."""
    escaped = avro_name(name)
    named = {**type_, "name": f"{escaped}{suffix}"}
    namespace = avro_namespace(options.avro_schema_prefix)
    if namespace:
        named["namespace"] = namespace
    return named if escaped == name else {**named, SQL_NAME: name}
