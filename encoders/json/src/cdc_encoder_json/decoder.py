"""Reads what the JSON encoder writes, for tests and audits. Nothing is lost on the way: numbers keep their digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_column_texts.pieces import NULL

from cdc_core import DecodedRow, Decoder, EncoderContext, RowBatch, TableSchema, Timestamp
from cdc_encoder_json.lines import read_lines
from cdc_encoder_json.objects import METADATA
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.reading import read_value
from cdc_encoder_json.scanning import plain, split_array, split_object, string

__all__ = ["JsonDecoder"]

_UPDATED, _MVCC, _KEY, _TOPIC = "updated", "mvcc_timestamp", "key", "topic"


class JsonDecoder(Decoder):
    """Reads messages and files of lines. Messages of a registry have ids of schemas, which it does not look up.

    In envelope `bare` a deleted row reads as it is written, as its key and nulls.
    """

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        self._envelope = context.envelope.envelope
        self._framed = options.confluent_schema_registry is not None

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        read_key = None if key is None else _key(schema, self._text(key))
        if not value:
            return DecodedRow(key=read_key, after=None)
        return self._row(schema, read_key, self._text(value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        *lines, rest = body.split(b"\n")
        if rest:
            raise ValueError(f"the last line has no end: {rest[:80]!r}")
        return [self._row(schema, None, line.decode()) for line in lines]

    def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Return the rows of a file as a batch. The encoder's own lines are read whole columns at a time."""
        read = read_lines(schema, self.context.envelope, body) if body else None
        return super().rows(schema, body) if read is None else read

    def resolved(self, value: bytes | None) -> Timestamp | None:
        if not value:
            return None
        members = split_object(self._text(value))
        if self._envelope != "wrapped":
            if members.keys() != {METADATA} or not members[METADATA].startswith("{"):
                return None
            members = split_object(members[METADATA])
        return Timestamp.parse(string(members["resolved"])) if members.keys() == {"resolved"} else None

    def _text(self, payload: bytes) -> str:
        if self._framed:
            # the package is an extra
            from cdc_schema_registry import unframe

            payload = unframe(payload)[1]
        return payload.decode()

    def _row(self, schema: TableSchema, key: tuple[Any, ...] | None, text: str) -> DecodedRow:
        members = split_object(text)
        if self._envelope == "wrapped":
            metadata = members
            after, before = (_image(schema, members.get(name, NULL)) for name in ("after", "before"))
        else:
            metadata = split_object(members.pop(METADATA, "{}"))
            after, before = _values(schema, members), None
        key_in_value = _key(schema, metadata[_KEY]) if _KEY in metadata else None
        return DecodedRow(
            key=key or key_in_value or _key_of(schema, after or before),
            after=after,
            before=before,
            updated=_timestamp(metadata, _UPDATED),
            mvcc=_timestamp(metadata, _MVCC),
            key_in_value=key_in_value,
            topic_in_value=string(metadata[_TOPIC]) if _TOPIC in metadata else None,
        )


def _key(schema: TableSchema, text: str) -> tuple[Any, ...]:
    items = split_array(text)
    if len(items) != len(schema.primary_key):
        return tuple(plain(item) for item in items)
    types = (schema.column(name).type for name in schema.primary_key)
    return tuple(read_value(item, type_) for item, type_ in zip(items, types, strict=True))


def _image(schema: TableSchema, text: str) -> dict[str, Any] | None:
    return None if text == NULL else _values(schema, split_object(text))


def _values(schema: TableSchema, members: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of *members*, the schema's columns first and in its order."""
    columns = [column for column in schema.columns if column.name in members]
    values = {column.name: read_value(members[column.name], column.type) for column in columns}
    return values | {name: plain(text) for name, text in members.items() if name not in values}


def _key_of(schema: TableSchema, image: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    if image is None or not image.keys() >= set(schema.primary_key):
        return None
    return tuple(image[name] for name in schema.primary_key)


def _timestamp(metadata: Mapping[str, str], name: str) -> Timestamp | None:
    return Timestamp.parse(string(metadata[name])) if name in metadata else None
