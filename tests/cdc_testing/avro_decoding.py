"""Reads Avro messages as consumers do: with Confluent's own deserializer and the registry's schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from cdc_testing.kafka_reading import Message
from cdc_testing.kafka_validation import Decode, DecodedRow
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_core import Timestamp

__all__ = ["avro_decoder"]


@contextmanager
def avro_decoder(registry_url: str) -> Iterator[Decode]:
    """Yield what decodes Avro messages of the wrapped envelope with `updated`, by the registry at *registry_url*."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        deserialize = AvroDeserializer(client)

        def record(message: Message, part: bytes, which: MessageField) -> dict[str, Any]:
            return cast(dict[str, Any], deserialize(part, SerializationContext(message.topic, which)))

        def decode(message: Message) -> DecodedRow | Timestamp:
            assert message.value is not None, f"a tombstone is no wrapped message: {message}"
            value = record(message, message.value, MessageField.VALUE)
            if message.key is None:
                assert value.keys() == {"resolved"}, f"a message without a key is no resolved mark: {value}"
                return Timestamp.parse(value["resolved"])
            key = record(message, message.key, MessageField.KEY)
            return DecodedRow(tuple(key.values()), value["after"], Timestamp.parse(value["updated"]))

        yield decode
