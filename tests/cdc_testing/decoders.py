"""Decoders of messages in tests: our decoder for JSON, Confluent's deserializer for Avro."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.options import JsonOptions
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_core import (
    Column,
    ColumnType,
    DecodedRow,
    Decoder,
    EncoderContext,
    Envelope,
    Kind,
    TableName,
    TableSchema,
    Timestamp,
)

_ID = Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64))
KEYED = TableSchema(name=TableName("d", "public", "keyed"), version=1, columns=(_ID,), primary_key=("id",))
"""A table whose only column is its key, an integer."""


def json_decoder(*, output: str = "messages") -> JsonDecoder:
    """Return a decoder of the envelope `wrapped` with `updated`, which returns values as in JSON."""
    return _QuickDecoder(_context(output, JsonOptions()))


@contextmanager
def avro_decoder(registry_url: str) -> Iterator[Decoder]:
    """Yield a decoder of Avro messages, which uses the schemas of the registry at *registry_url* like a consumer."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield _ConfluentDecoder(client)


class _QuickDecoder(JsonDecoder):
    """A decoder that ignores the types of columns, which makes it five times as fast for many rows."""

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        read = None if key is None else tuple(json.loads(key))
        return DecodedRow(key=read, after=None) if value is None else _row(json.loads(value), read)

    def file(self, schema: TableSchema, body: bytes) -> list[DecodedRow]:
        *lines, rest = body.split(b"\n")
        assert not rest, f"the last line is incomplete: {rest[:80]!r}"
        return [_row(json.loads(line), None) for line in lines]


class _ConfluentDecoder(Decoder):
    """A decoder that uses only Confluent's deserializer."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        super().__init__(_context("messages", None))
        self._deserialize = AvroDeserializer(client)

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        assert key is not None
        assert value is not None, "a tombstone is not a wrapped message"
        row = self._record(value, MessageField.VALUE)
        keys = tuple(self._record(key, MessageField.KEY).values())
        return DecodedRow(key=keys, after=row["after"], updated=Timestamp.parse(row["updated"]))

    def file(self, schema: TableSchema, body: bytes) -> list[DecodedRow]:
        raise AssertionError("this decoder reads only messages")

    def resolved(self, value: bytes | None) -> Timestamp:
        assert value is not None
        mark = self._record(value, MessageField.VALUE)
        assert mark.keys() == {"resolved"}, f"a message without a key is not a resolved mark: {mark}"
        return Timestamp.parse(mark["resolved"])

    def _record(self, part: bytes, which: MessageField) -> dict[str, Any]:
        return cast(dict[str, Any], self._deserialize(part, SerializationContext("any", which)))


def _row(value: dict[str, Any], key: tuple[Any, ...] | None) -> DecodedRow:
    in_value = tuple(value["key"]) if "key" in value else None
    return DecodedRow(
        key=in_value if key is None else key,
        after=value["after"],
        before=value.get("before"),
        updated=Timestamp.parse(value["updated"]) if "updated" in value else None,
        mvcc=Timestamp.parse(value["mvcc_timestamp"]) if "mvcc_timestamp" in value else None,
        key_in_value=in_value,
        topic_in_value=value.get("topic"),
    )


def _context(output: str, options: Any) -> EncoderContext:
    return EncoderContext(changefeed="test", envelope=Envelope(updated=True), options=options, output=output)
