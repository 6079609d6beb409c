"""Rows in JSON as for a compacted topic: keys and rows with schemas, tombstones, and resolved marks between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_reading import read_topics
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc_core import Timestamp

pytestmark = pytest.mark.slow


def test_a_consumer_rebuilds_the_table_from_rows_and_tombstones_while_its_columns_change(
    database: str,
    tmp_path: Path,
    kafka_broker: Kafka,
    schema_registry: Registry,
    topic_prefix: str,
    kept_threads: KeptThreads,
) -> None:
    topic = f"{topic_prefix}orders"
    options = {
        "envelope": "row",
        "updated": False,
        "topic_prefix": topic_prefix,
        "confluent_schema_registry": schema_registry.url,
    }
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, price numeric)")
        connection.execute("INSERT INTO orders SELECT n, n / 4.0 FROM generate_series(1, 20) n")
        sink = f"kafka://{kafka_broker.bootstrap_servers}"
        feed = Feed(tmp_path, database, ["orders"], options=options, sink=sink)
        with feed:
            feed.once(kept_threads)
            connection.execute("DELETE FROM orders WHERE id % 3 = 0")
            connection.execute("ALTER TABLE orders ADD COLUMN note text")
            connection.execute("UPDATE orders SET note = 'é', price = 'NaN' WHERE id % 2 = 0")
            connection.execute("DELETE FROM orders WHERE id = 20")
            connection.execute("UPDATE orders SET id = 100 WHERE id = 1")
            feed.once(kept_threads)
        wanted = dict(connection.execute("SELECT id, row_to_json(o) FROM orders o").fetchall())
    found: dict[int, Any] = {}
    tombstones, marks = 0, []
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        deserializer = JSONDeserializer(None, schema_registry_client=client, conf={"validate": True})
        for message in read_topics(kafka_broker.bootstrap_servers, [topic]):
            value = deserializer(message.value, SerializationContext(topic, MessageField.VALUE))
            if message.key is None:
                marks.append(Timestamp.parse(value["__crdb__"]["resolved"]))
                continue
            (id_,) = deserializer(message.key, SerializationContext(topic, MessageField.KEY))
            tombstones += value is None
            found[id_] = value
    assert {id_: {"note": None, **row} for id_, row in found.items() if row is not None} == wanted
    assert tombstones == 6 + 1 + 1
    assert len(set(marks)) >= 2
