"""Reads what the JSON encoder writes, for tests, audits and readers of files. Numbers keep all their digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from cdc_column_texts import JSON_NULL_OBJECT, NULL, key_in_row

from cdc_core import (
    UNAVAILABLE_MEMBER,
    Column,
    ColumnType,
    DecodedRow,
    Decoder,
    EncoderContext,
    Kind,
    RowBatch,
    TableSchema,
    Timestamp,
    op_of,
    plain_value,
)
from cdc_encoder_json.connect_schema import written_type
from cdc_encoder_json.line_reading import read_lines
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.scanning import plain, split_array, split_object, string

_BOOLS = {"true": True, "false": False}


class JsonDecoder(Decoder):
    """Reads messages and files of lines. It skips the schema ids of a registry and looks up no schema.

    In envelope `bare`, a deleted row is read as it is written: its key, and nulls elsewhere. Of an event in mode
    "binary", only the data is read.
    """

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        self._framed = options.confluent_schema_registry is not None and context.events is None
        self._described = context.envelope.has_schema
        self._events = None if context.events is None or context.events.binary else context.events

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        replaced = self.context.key_column is not None
        read_key = None if key is None or replaced else self._key(schema, self._text(key), with_schema=self._described)
        if not value:
            return DecodedRow(key=read_key, after=None)
        return self._row(schema, read_key, self._text(value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        *lines, rest = body.split(b"\n")
        if rest:
            raise ValueError(f"the last line is incomplete: {rest[:80]!r}")
        return [self._row(schema, None, line.decode()) for line in lines]

    def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Return the rows of a file as a batch. Lines exactly as the encoder writes them are read by column."""
        read = read_lines(schema, self.context.envelope, body) if body else None
        return super().rows(schema, body) if read is None else read

    def resolved(self, value: bytes | None) -> Timestamp | None:
        members = split_object(self._text(value)) if value else {}
        if self._events is not None and "data" in members:
            members = split_object(members["data"])
        if len(members) != 1:
            return None
        metadata = self.context.envelope.split(members, lambda text: split_object(text) if text[0] == "{" else None)[2]
        return Timestamp.parse(string(metadata["resolved"])) if metadata.keys() == {"resolved"} else None

    def _text(self, payload: bytes) -> str:
        if self._framed:
            # The package is an extra.
            from cdc_schema_registry import unframe

            payload = unframe(payload)[1]
        return payload.decode()

    def _row(self, schema: TableSchema, key: tuple[Any, ...] | None, text: str) -> DecodedRow:
        members = split_object(text)
        type_ = None
        if self._events is not None:
            members, type_ = split_object(members["data"]), self._events.op_of(string(members["type"]))
        *images, metadata = self.context.envelope.split(members, _members)
        after, before = (None if image is None else self._values(schema, image) for image in images)
        key_in_value = self._key(schema, metadata["key"]) if "key" in metadata else None
        return DecodedRow(
            key=key or key_in_value or key_in_row(schema, after or before),
            after=after,
            before=before,
            updated=_timestamp(metadata, "updated"),
            mvcc=_timestamp(metadata, "mvcc_timestamp"),
            key_in_value=key_in_value,
            topic_in_value=string(metadata["topic"]) if "topic" in metadata else None,
            unavailable=tuple(string(name) for name in split_array(metadata.get(UNAVAILABLE_MEMBER, "[]"))),
            op=op_of(string(metadata["op"])) if "op" in metadata else type_,
        )

    def _key(self, schema: TableSchema, text: str, *, with_schema: bool = False) -> tuple[Any, ...]:
        if self.context.envelope.enriched:
            members = split_object(split_object(text)["payload"] if with_schema else text)
            items = [members[name] for name in schema.primary_key if name in members]
        else:
            items = split_array(text)
        if len(items) != len(schema.primary_key):
            return tuple(plain(item) for item in items)
        return tuple(self._value(item, column) for item, column in zip(items, schema.key_columns, strict=True))

    def _values(self, schema: TableSchema, members: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of *members*. The columns of *schema* come first, in table order."""
        columns = [column for column in schema.columns if column.name in members]
        values = {column.name: self._value(members[column.name], column) for column in columns}
        return values | {name: plain(text) for name, text in members.items() if name not in values}

    def _value(self, text: str, column: Column) -> Any:
        return _read_value(text, written_type(column.type) if self._described else column.type)


def _members(text: str) -> dict[str, str] | None:
    return None if text == NULL else split_object(text)


def _timestamp(metadata: Mapping[str, str], name: str) -> Timestamp | None:
    return Timestamp.parse(string(metadata[name])) if name in metadata else None


def _read_value(text: str, type_: ColumnType) -> Any:
    """Return the value of one column. A text of another kind, from another version of the table, is read as plain JSON.

    Raises: ValueError when it is not JSON.
    """
    if text == NULL:
        return None
    try:
        return _READERS.get(type_.kind, _string)(text, type_)
    except (ValueError, KeyError, OverflowError):
        return plain(text)


def _string(text: str, _: ColumnType) -> str:
    return string(text)


def _float(text: str, type_: ColumnType) -> float:
    number = string(text) if text.startswith('"') else text
    # a float of 64 bits could be between two of 32
    return float(pa.scalar(number).cast(type_.arrow).as_py()) if type_.bits == 32 else float(number)


def _decimal(text: str, _: ColumnType) -> str:
    if not text.startswith('"'):
        float(text)
        return text
    return string(text)


def _bytes(text: str, _: ColumnType) -> bytes:
    digits = string(text)
    if not digits.startswith("\\x"):
        raise ValueError(f"not bytes: {text!r}")
    return bytes.fromhex(digits[2:])


def _date(text: str, type_: ColumnType) -> Any:
    return _datetime(string(text), "D", np.iinfo(np.int32), type_)


def _timestamp_value(text: str, type_: ColumnType) -> Any:
    value = string(text)
    zone = type_.kind is Kind.TIMESTAMPTZ and value.endswith("Z")
    return _datetime(value[:-1] if zone else value, "us", np.iinfo(np.int64), type_)


def _time(text: str, type_: ColumnType) -> Any:
    hours, minutes, seconds = string(text).split(":")
    us = round(float(seconds) * 1_000_000)
    return plain_value(pa.scalar((int(hours) * 60 + int(minutes)) * 60_000_000 + us, type_.arrow))


def _datetime(text: str, unit: Literal["D", "us"], limits: np.iinfo[Any], type_: ColumnType) -> Any:
    special = {"infinity": int(limits.max), "-infinity": int(limits.min)}
    number = special.get(text)
    if number is None:
        number = int(np.array(text, f"datetime64[{unit}]").astype(np.int64))
    return plain_value(pa.scalar(number, type_.arrow))


_READERS: dict[Kind, Callable[[str, ColumnType], Any]] = {
    Kind.BOOL: lambda text, _: _BOOLS[text],
    Kind.INT: lambda text, _: int(text),
    Kind.FLOAT: _float,
    Kind.DECIMAL: _decimal,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp_value,
    Kind.TIMESTAMPTZ: _timestamp_value,
    Kind.JSON: lambda text, _: NULL if text == JSON_NULL_OBJECT else text,
    Kind.ARRAY: lambda text, _: text,
    Kind.COMPOSITE: lambda text, _: text,
}
