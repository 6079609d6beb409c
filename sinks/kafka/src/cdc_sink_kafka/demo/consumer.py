"""Reads topics of Avro messages as a consumer does, into a replay."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from cdc_rangefeed_postgres.demo.replay import Replay
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_core import Timestamp

_METADATA_LIMIT_S = 10.0
_QUIET_S = 0.3
_BATCH = 1000


class AvroConsumer:
    """Reads all partitions of *topics* from the beginning, with Confluent's own deserializer.

    *topics* maps each topic to the table name that `replay` uses. The topics must exist. Partitions that are added
    later are read too.
    """

    def __init__(self, bootstrap_servers: str, registry_url: str, topics: Mapping[str, str]) -> None:
        self.replay = Replay()
        self._topics = topics
        self._assigned: set[tuple[str, int]] = set()
        self._registry = SchemaRegistryClient({"url": registry_url})
        self._deserialize = AvroDeserializer(self._registry)
        self._json: dict[int, frozenset[str]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                # required by the client, though it joins no group and commits nothing
                "group.id": "cdc-demo",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self) -> Timestamp:
        """Read what the topics hold now, and return the lowest resolved mark of all partitions.

        Raises: KafkaException.
        """
        self._assign_new_partitions()
        while messages := self._consumer.consume(_BATCH, _QUIET_S):
            for message in messages:
                self._note(message)
        return self.replay.last_resolved

    def _assign_new_partitions(self) -> None:
        found = self._consumer.list_topics(timeout=_METADATA_LIMIT_S).topics
        there = {
            (topic, partition) for topic in self._topics if topic in found for partition in found[topic].partitions
        }
        new = sorted(there - self._assigned)
        if new:
            for partition in new:
                self.replay.watch(partition)
            self._consumer.incremental_assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in new])
            self._assigned |= set(new)

    def _note(self, message: Message) -> None:
        error, topic, number, payload = message.error(), message.topic(), message.partition(), message.value()
        if error is not None:
            raise KafkaException(error)
        assert topic is not None
        assert number is not None
        assert payload is not None
        partition = (topic, number)
        value = self._read(topic, MessageField.VALUE, payload)
        key = message.key()
        if key is None:
            self.replay.note_resolved(partition, Timestamp.parse(value["resolved"]))
            return
        assert isinstance(key, bytes)
        values = list(self._read(topic, MessageField.KEY, key).values())
        after = value["after"]
        row = None if after is None else {"key": values, "after": self._plain(after, payload)}
        self.replay.note_row(
            partition,
            self._topics[topic],
            key=json.dumps(values, default=str),
            row=None if row is None else json.dumps(row, default=str).encode(),
            updated=Timestamp.parse(value["updated"]),
        )

    def _read(self, topic: str, field: MessageField, payload: bytes) -> dict[str, Any]:
        found = self._deserialize(payload, SerializationContext(topic, field))
        assert isinstance(found, dict)
        return found

    def _plain(self, after: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
        """Return the row as in JSON: Avro has JSON columns as text, so parse them."""
        columns = self._json_columns(payload)
        return {
            name: json.loads(value) if name in columns and value is not None else value for name, value in after.items()
        }

    def _json_columns(self, payload: bytes) -> frozenset[str]:
        """Return the JSON columns. The schema that *payload* was written with has the types of the source."""
        (schema_id,) = struct.unpack_from(">xI", payload)
        if schema_id not in self._json:
            text = self._registry.get_schema(schema_id).schema_str
            assert text is not None
            (after,) = (field for field in json.loads(text)["fields"] if field["name"] == "after")
            columns = after["type"][1]["fields"]
            self._json[schema_id] = frozenset(
                column["name"]
                for column in columns
                if column.get("__crdb__", "").rpartition(" ")[2] in ("json", "jsonb")
            )
        return self._json[schema_id]
