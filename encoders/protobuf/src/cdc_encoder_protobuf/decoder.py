"""Reads what the Protocol Buffers encoder writes, for tests, audits and readers of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from cdc_core import DecodedRow, Decoder, RowPlace, TableSchema, Timestamp
from cdc_encoder_protobuf.descriptors import message_class
from cdc_encoder_protobuf.value_reading import read_row

__all__ = ["ProtobufDecoder"]

_MARKS = ("resolved", "bareResolved")


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
                read_row(schema, getattr(metadata, name).values) if metadata.HasField(name) else None
                for name in ("after", "before")
            )
        elif message.HasField("bare"):
            metadata = message.bare.__crdb__
            after, before = read_row(schema, message.bare.values), None
        else:
            raise ValueError(f"a message is not a row: it has {which or 'no data'}")
        key_in_value = _key(schema, metadata.key) if metadata.HasField("key") else None
        return DecodedRow(
            key=key or key_in_value or _key_of(schema, after or before),
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
        raise ValueError(f"not a message {name}: {data[:80]!r} ({error})") from error


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
    found = read_row(schema, key.key)
    return (
        tuple(found[name] for name in schema.primary_key)
        if {*schema.primary_key} == found.keys()
        else tuple(found.values())
    )


def _key_of(schema: TableSchema, image: dict[str, Any] | None) -> tuple[Any, ...] | None:
    if image is None or schema.key or not image.keys() >= set(schema.primary_key):
        return None
    return tuple(image[name] for name in schema.primary_key)


def _timestamp(text: str) -> Timestamp | None:
    return Timestamp.parse(text) if text else None
