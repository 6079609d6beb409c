"""The columns of a table change while its rows go to Kafka in Avro: consumers continue, even with the old schema."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from cdc_testing.decoders import avro_decoder
from cdc_testing.fixtures import Counts
from cdc_testing.kafka_feeds import followed_feed
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.thread_host import KeptThreads
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.slow

STEPS = [
    ("ALTER TABLE items ADD COLUMN b int", "INSERT INTO items VALUES (2, 'two', 2, 22)"),
    ("ALTER TABLE items ALTER COLUMN n TYPE bigint", "INSERT INTO items VALUES (3, 'three', 1099511627776, 33)"),
    ("ALTER TABLE items DROP COLUMN a", "INSERT INTO items VALUES (4, 4, 44)"),
]


def test_consumers_continue_when_columns_are_added_widened_and_dropped(
    database: str,
    tmp_path: Path,
    kept_threads: KeptThreads,
    kafka_broker: Kafka,
    schema_registry: Registry,
    topic_prefix: str,
    counts: Counts,
) -> None:
    topic = f"{topic_prefix}items"
    subject = f"{topic}-value"
    options = {
        "confluent_schema_registry": schema_registry.url,
        "topic_prefix": topic_prefix,
        "topic_partitions": 1,
        "schema_change_policy": "nobackfill",
    }
    servers = kafka_broker.bootstrap_servers
    with (
        psycopg.connect(database, autocommit=True) as connection,
        SchemaRegistryClient({"url": schema_registry.url}) as registry,
        avro_decoder(schema_registry.url) as decoder,
        followed_feed(
            tmp_path, database, servers, ["items"], options=options, format_="avro", decoder=decoder
        ) as followed,
    ):
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, a text, n int)")
        connection.execute("INSERT INTO items VALUES (1, 'one', 1)")
        registry.set_compatibility(subject, level="FULL_TRANSITIVE")

        def work() -> None:
            followed.reach_now()
            for change, insert in STEPS:
                connection.execute(change)
                connection.execute(insert)
                followed.reach_now()

        followed.feed.during(kept_threads, work)
        messages = read_topics(servers, [topic])
        versions = sorted(registry.get_versions(subject))
        seen = [
            rows_with(registry, registry.get_version(subject, version).schema.schema_str, messages)
            for version in (versions[0], versions[-1])
        ]
    assert seen[0] == [
        {"id": 1, "a": "one", "n": 1},
        {"id": 2, "a": "two", "n": 2},
        {"id": 3, "a": "three", "n": 1 << 40},
        {"id": 4, "a": None, "n": 4},
    ]
    assert seen[1] == [
        {"id": 1, "n": 1, "b": None},
        {"id": 2, "n": 2, "b": 22},
        {"id": 3, "n": 1 << 40, "b": 33},
        {"id": 4, "n": 4, "b": 44},
    ]
    counts(rows=followed.follower.rows, marks=followed.follower.marks, schema_versions=len(versions))


def rows_with(registry: SchemaRegistryClient, schema: str | None, messages: Iterable[Message]) -> list[object]:
    """Return the rows as a consumer with *schema* reads them. It must be able to read the resolved marks, too."""
    deserialize = AvroDeserializer(registry, schema)
    rows = []
    for message in messages:
        value = deserialize(message.value or b"", SerializationContext(message.topic, MessageField.VALUE))
        assert isinstance(value, dict)
        if message.key is None:
            assert value["resolved"]
            continue
        rows.append(value["after"])
    return rows
