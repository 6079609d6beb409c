"""The reference encoder: JSON objects whose values are texts, or numbers where these are exact.

It keeps every promise of encoders. It encodes one row at a time, in plain Python.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core import (
    CdcError,
    Column,
    ColumnType,
    ConfigError,
    DecodedRow,
    Decoder,
    DeleteForm,
    EncodeError,
    Encoder,
    EncoderContext,
    EncoderRegistration,
    Kind,
    MessageBatch,
    Op,
    RetryableError,
    RowBatch,
    RowPlace,
    TableSchema,
    Timestamp,
    option,
    plain_value,
)

_DECIMAL = re.compile(r"-?\d+(\.\d+)?|NaN|-?Infinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceEncoderOptions:
    """Options of the reference encoder."""

    ascii_only: bool = option(True, doc="Escape all non-ASCII characters.")
    service: str = option(
        "", doc="HOST:PORT of a service that must accept a connection before every batch; empty for none."
    )
    password: str | None = option(None, doc="Not used. Tests check that it is never shown.", secret=True)


class ReferenceEncoder(Encoder):
    """A message key is an array of the key's values, and a message value an object. Each is on one line."""

    file_extension = ".lines"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.options: ReferenceEncoderOptions = context.options
        context.envelope.check("encoder 'reference'")

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Accept every table that has the column of the key."""
        for schema, _ in tables:
            self.keyed_schema(schema)
        self.reach(ConfigError)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        self.reach(RetryableError)
        keys, values = [], []
        keyed = self.keyed(rows)
        for index in range(len(rows)):
            value = self.value(rows, index, topic, self.key(rows, index))
            keys.append(as_bytes(self.key(keyed, index), ascii_only=self.options.ascii_only))
            values.append(None if value is None else as_bytes(value, ascii_only=self.options.ascii_only))
        return MessageBatch(
            topic=topic,
            key=pa.array(keys, pa.large_binary()),
            value=pa.array(values, pa.large_binary()),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002
        self.reach(RetryableError)
        return as_bytes({"resolved": str(timestamp)})

    def reach(self, unreachable: type[CdcError]) -> None:
        """Return when the service accepts a connection. Raises: *unreachable* when it does not."""
        host, _, port = self.options.service.partition(":")
        if host:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except OSError as error:
                raise unreachable(f"service {self.options.service} is unreachable: {error}; start it") from error

    def key(self, rows: RowBatch, index: int) -> list[Any]:
        """Return the key of a row, in key order."""
        key = rows.column("key")[index]
        return [self.cell(rows, index, rows.schema.column(name), key[name]) for name in rows.schema.primary_key]

    def value(self, rows: RowBatch, index: int, topic: str, key: list[Any]) -> dict[str, Any] | None:
        """Return the members of the value of a row's message, None for a tombstone."""
        envelope = self.context.envelope
        deleted = rows.column("op")[index].as_py() == Op.DELETE
        if deleted and envelope.delete is DeleteForm.TOMBSTONE:
            return None
        value: dict[str, Any] = {}
        if envelope.row is not RowPlace.NOWHERE:
            value["after"] = after = None if deleted else self.image(rows, index, "after")
            lacking = self.lacking(rows, index)
            if after is not None and lacking:
                value |= {"after": {k: v for k, v in after.items() if k not in lacking}, "unavailable": lacking}
        if envelope.diff:
            value["before"] = self.image(rows, index, "before")
        if envelope.updated:
            value["updated"] = self.timestamp(rows, index, "updated")
        if envelope.mvcc_timestamp:
            value["mvcc"] = self.timestamp(rows, index, "mvcc")
        if envelope.key_in_value:
            value["key"] = key
        if envelope.topic_in_value:
            value["topic"] = topic
        return value

    def lacking(self, rows: RowBatch, index: int) -> list[str]:
        """Return the columns of a row whose values the source does not know."""
        return (rows.column("unavailable")[index].as_py() or []) if rows.has_unavailable else []

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        """Return the row after or before the change."""
        if name not in rows.batch.schema.names or not rows.column(name)[index].is_valid:
            return None
        row = rows.column(name)[index]
        return {column.name: self.cell(rows, index, column, row[column.name]) for column in rows.schema.columns}

    def cell(self, rows: RowBatch, index: int, column: Column, scalar: pa.Scalar) -> Any:
        """Return the JSON value of a column. Raises: EncodeError."""
        if not scalar.is_valid:
            return None
        kind = column.type.kind
        if kind in _DATETIMES:
            return scalar.value
        value = scalar.as_py()
        if kind is Kind.FLOAT:
            return value.hex()
        if kind is Kind.BYTES:
            return value.hex()
        if kind is Kind.DECIMAL and not _DECIMAL.fullmatch(value):
            raise EncodeError(
                f"column {column.name} of table {rows.schema.name} has a value that is not a number "
                f"(key {rows.shown_key(index)}): {value[:80]!r}; correct the row"
            )
        return value

    def timestamp(self, rows: RowBatch, index: int, name: str) -> str:
        """Return a timestamp of a row, that of `updated` when it is unknown."""
        column = rows.column(name if name in rows.batch.schema.names else "updated")
        time = column[index].as_py() or rows.column("updated")[index].as_py()
        return str(Timestamp(time["wall"], time["logical"]))


class ReferenceDecoder(Decoder):
    """Reads what the reference encoder writes."""

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        read = None if key is None or self.context.key_column else _key(schema, json.loads(key))
        return DecodedRow(key=read, after=None) if value is None else _row(schema, read, json.loads(value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        *lines, rest = body.split(b"\n")
        if rest:
            raise ValueError(f"the last line is incomplete: {rest[:80]!r}")
        return [_row(schema, None, json.loads(line)) for line in lines]

    def resolved(self, value: bytes | None) -> Timestamp | None:
        found = {} if value is None else json.loads(value)
        return Timestamp.parse(found["resolved"]) if "resolved" in found else None


REFERENCE_ENCODER = EncoderRegistration(
    name="reference",
    encoder=f"{__name__}:ReferenceEncoder",
    options=f"{__name__}:ReferenceEncoderOptions",
    summary="Lossless lines of JSON, for the conformance kit's own tests",
    envelopes=frozenset({"wrapped", "bare", "row", "key_only"}),
    outputs=frozenset({"messages", "files"}),
    rekeys=True,
    decoder=f"{__name__}:ReferenceDecoder",
)

_DATETIMES = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
"""Kinds that are written as the number in Arrow."""


def as_bytes(value: Any, *, ascii_only: bool = True) -> bytes:
    """Return *value* as JSON."""
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()


def _row(schema: TableSchema, key: tuple[Any, ...] | None, value: Mapping[str, Any]) -> DecodedRow:
    in_value = _key(schema, value["key"]) if "key" in value else None
    return DecodedRow(
        key=in_value if key is None else key,
        after=_image(schema, value.get("after")),
        before=_image(schema, value.get("before")),
        updated=Timestamp.parse(value["updated"]) if "updated" in value else None,
        mvcc=Timestamp.parse(value["mvcc"]) if "mvcc" in value else None,
        key_in_value=in_value,
        topic_in_value=value.get("topic"),
        unavailable=tuple(value.get("unavailable", ())),
    )


def _key(schema: TableSchema, values: Sequence[Any]) -> tuple[Any, ...]:
    types = (schema.column(name).type for name in schema.primary_key)
    return tuple(_value(type_, value) for type_, value in zip(types, values, strict=True))


def _image(schema: TableSchema, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(_values(schema, values))


def _values(schema: TableSchema, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    types = {column.name: column.type for column in schema.columns}
    for name, value in values.items():
        yield name, _value(types[name], value) if name in types else value


def _value(type_: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if type_.kind in _DATETIMES:
        return plain_value(pa.scalar(value, type_.arrow))
    if type_.kind is Kind.FLOAT:
        return float.fromhex(value)
    return bytes.fromhex(value) if type_.kind is Kind.BYTES else value
