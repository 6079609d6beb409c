"""Reads what the Protocol Buffers encoder writes, for tests, audits and readers of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from cdc_column_texts import array_text, column_of_texts, key_in_row
from google.protobuf.message import DecodeError

from cdc_core import ColumnType, DecodedRow, Decoder, Kind, RowPlace, TableSchema, Timestamp, plain_value
from cdc_encoder_protobuf.descriptors import message_class

_MARKS = ("resolved", "bareResolved")
_TEXTS = {
    ("date_value", Kind.DATE),
    ("time_value", Kind.TIME),
    ("string_value", Kind.TIMESTAMP),
    ("string_value", Kind.TIMESTAMPTZ),
}
"""The fields that hold the text of a value whose kind has numbers in Arrow."""
_STAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


class ProtobufDecoder(Decoder):
    """Reads messages and files with the official library.

    In envelope `bare`, a deleted row is read as it is written: its key, and nulls elsewhere.
    """

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        replaced = self.context.key_column is not None
        keys = None if key is None or replaced else _key(schema, _parsed("Key", key))
        if value is None:
            return DecodedRow(key=keys, after=None)
        return self._row(schema, keys, _parsed("Message", value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        return [self._row(schema, None, _parsed("Message", data)) for data in _delimited(body)]

    def resolved(self, value: bytes | None) -> Timestamp | None:
        if not value:
            return None
        if self.context.output == "files":
            first, *others = _delimited(value)
            if others:
                return None
            value = first
        message = _parsed("Message", value)
        which = message.WhichOneof("data")
        if which not in _MARKS:
            return None
        mark = message.resolved if which == "resolved" else message.bareResolved.__crdb__
        return Timestamp.parse(mark.resolved)

    def _row(self, schema: TableSchema, key: tuple[Any, ...] | None, message: Any) -> DecodedRow:
        which = message.WhichOneof("data")
        if self.context.envelope.row is RowPlace.NOWHERE and which is None:
            return DecodedRow(key=key, after=None)
        if message.HasField("wrapped"):
            metadata = message.wrapped
            after, before = (
                _row_of(schema, getattr(metadata, name).values) if metadata.HasField(name) else None
                for name in ("after", "before")
            )
        elif message.HasField("bare"):
            metadata = message.bare.__crdb__
            after, before = _row_of(schema, message.bare.values), None
        else:
            raise ValueError(f"a message is not a row: it has {which or 'no data'}")
        key_in_value = _key(schema, metadata.key) if metadata.HasField("key") else None
        return DecodedRow(
            key=key or key_in_value or key_in_row(schema, after or before),
            after=after,
            before=before,
            updated=_timestamp(metadata.updated),
            mvcc=_timestamp(metadata.mvcc_timestamp),
            key_in_value=key_in_value,
            topic_in_value=metadata.topic or None,
            unavailable=tuple(metadata.unavailable),
        )


def _parsed(name: str, data: bytes) -> Any:
    try:
        return message_class(name).FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a valid message of type {name}: {data[:80]!r} ({error})") from error


def _delimited(body: bytes) -> Iterator[bytes]:
    """Yield the messages of a file. Raises: ValueError when the last one is truncated."""
    place = 0
    while place < len(body):
        size, start = _size(body, place)
        place = start + size
        if place > len(body):
            raise ValueError(f"the last message has {len(body) - start} bytes, not {size}")
        yield body[start:place]


def _size(body: bytes, place: int) -> tuple[int, int]:
    """Return the varint at *place*, and the place after it."""
    size = 0
    for index, byte in enumerate(body[place : place + 10]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size, place + index + 1
    raise ValueError(f"the size at byte {place} has no end")


def _key(schema: TableSchema, key: Any) -> tuple[Any, ...]:
    found = _row_of(schema, key.key)
    return (
        tuple(found[name] for name in schema.primary_key)
        if {*schema.primary_key} == found.keys()
        else tuple(found.values())
    )


def _timestamp(text: str) -> Timestamp | None:
    return Timestamp.parse(text) if text else None


def _row_of(schema: TableSchema, values: Mapping[str, Any]) -> dict[str, Any]:
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
        return array_text([_item(item, element) for item in plain], element)
    if field == "timestamp_value":
        known = type_ is not None and type_.kind in _STAMPS
        return plain_value(pa.scalar(plain, type_.arrow if known and type_ else pa.timestamp("us", "UTC")))
    if type_ is not None and (field, type_.kind) in _TEXTS:
        return plain_value(column_of_texts(pa.array([plain], pa.string()), type_)[0])
    return plain


def _item(value: Any, element: ColumnType) -> Any:
    """Return an item of an array as `array_text` takes it."""
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
