"""`read_topics` returns all messages of a topic, unchanged."""

from __future__ import annotations

import pytest
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import (
    add_partitions,
    by_partition,
    create_topic,
    delete_topic,
    partitions_of,
    read_topics,
)
from confluent_kafka import KafkaException, Producer


def test_all_messages_are_read_in_the_order_of_each_partition(kafka_broker: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}numbers"
    create_topic(kafka_broker.bootstrap_servers, topic, partitions=3)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
    )
    for number in range(5000):
        producer.produce(topic, str(number).encode(), str(number % 7).encode(), partition=number % 2)
    assert producer.flush(300) == 0
    messages = read_topics(kafka_broker.bootstrap_servers, [topic])
    read = {place: [int(message.value or -1) for message in found] for place, found in by_partition(messages).items()}
    assert read == {(topic, 0): list(range(0, 5000, 2)), (topic, 1): list(range(1, 5000, 2))}
    assert [message.offset for message in by_partition(messages)[topic, 1]] == list(range(2500))


def test_tombstones_headers_and_timestamps_are_unchanged(kafka_broker: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}tombstones"
    create_topic(kafka_broker.bootstrap_servers, topic)
    assert read_topics(kafka_broker.bootstrap_servers, [topic]) == []
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, None, b"k", headers=[("a", b"1"), ("a", b"2"), ("b", None)], timestamp=1_700_000_000_000)
    producer.produce(topic, b"", None)
    assert producer.flush(300) == 0
    tombstone, empty = read_topics(kafka_broker.bootstrap_servers, [topic])
    assert (tombstone.key, tombstone.value, tombstone.timestamp_ms) == (b"k", None, 1_700_000_000_000)
    assert tombstone.headers == (("a", b"1"), ("a", b"2"), ("b", None))
    assert (empty.key, empty.value, empty.headers) == (None, b"", ())


def test_partitions_can_be_added_and_topics_deleted(kafka_broker: Kafka, topic_prefix: str) -> None:
    servers, topic = kafka_broker.bootstrap_servers, f"{topic_prefix}grows"
    create_topic(servers, topic, partitions=2, config={"max.message.bytes": "2000"})
    add_partitions(servers, topic, 4)
    assert partitions_of(servers, [topic]) == [(topic, 0), (topic, 1), (topic, 2), (topic, 3)]
    delete_topic(servers, topic)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        read_topics(servers, [topic])
