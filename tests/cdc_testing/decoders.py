"""What reads messages in tests: our own decoder for JSON, Confluent's deserializer for Avro."""

from __future__ import annotations

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
    EnvelopeOptions,
    Kind,
    TableName,
    TableSchema,
    Timestamp,
)

__all__ = ["KEYED", "avro_decoder", "json_decoder"]

_ID = Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64))
KEYED = TableSchema(name=TableName("d", "public", "keyed"), version=1, columns=(_ID,), primary_key=("id",))
"""A table of which a decoder knows no more than its key, an integer."""


def json_decoder(*, output: str = "messages") -> JsonDecoder:
    """Return what reads the wrapped envelope with `updated`."""
    return JsonDecoder(_context(output, JsonOptions()))


@contextmanager
def avro_decoder(registry_url: str) -> Iterator[Decoder]:
    """Yield what reads Avro messages as consumers do, with the schemas of the registry at *registry_url*."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield _ConfluentDecoder(client)


class _ConfluentDecoder(Decoder):
    """Knows nothing of our encoder: values are what Confluent's deserializer makes of them."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        super().__init__(_context("messages", None))
        self._deserialize = AvroDeserializer(client)

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        assert key is not None
        assert value is not None, "a tombstone is no wrapped message"
        row = self._record(value, MessageField.VALUE)
        keys = tuple(self._record(key, MessageField.KEY).values())
        return DecodedRow(key=keys, after=row["after"], updated=Timestamp.parse(row["updated"]))

    def file(self, schema: TableSchema, body: bytes) -> list[DecodedRow]:
        raise AssertionError("it reads messages")

    def resolved(self, value: bytes | None) -> Timestamp:
        assert value is not None
        mark = self._record(value, MessageField.VALUE)
        assert mark.keys() == {"resolved"}, f"a message without a key is no resolved mark: {mark}"
        return Timestamp.parse(mark["resolved"])

    def _record(self, part: bytes, which: MessageField) -> dict[str, Any]:
        return cast(dict[str, Any], self._deserialize(part, SerializationContext("any", which)))


def _context(output: str, options: Any) -> EncoderContext:
    return EncoderContext(changefeed="test", envelope=EnvelopeOptions(updated=True), options=options, output=output)
