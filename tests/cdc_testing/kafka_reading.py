"""What a real consumer reads from Kafka, byte for byte, and topics made and unmade."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from cdc_sink_kafka import reader
from cdc_sink_kafka.demo.servers import admin_client
from confluent_kafka import Consumer
from confluent_kafka import Message as ClientMessage
from confluent_kafka.cimpl import NewPartitions, NewTopic

from cdc_core import StoredMessage

__all__ = [
    "Message",
    "add_partitions",
    "by_partition",
    "consumer",
    "copied",
    "create_topic",
    "delete_topic",
    "delete_topics",
    "partitions_of",
    "read_topics",
]

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message; a `value` of None is a tombstone. `timestamp_ms` is what the broker says of it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def stored(self) -> StoredMessage:
        """What a sink's reader gives of it."""
        return StoredMessage(topic=self.topic, partition=self.partition, key=self.key, value=self.value)


def read_topics(
    bootstrap_servers: str,
    topics: Iterable[str],
    *,
    settings: Mapping[str, str | int | float | bool] | None = None,
    limit_s: float = _LIMIT_S,
) -> list[Message]:
    """Return all that *topics* hold by now, in the order in which a consumer of all their partitions got it.

    Within a partition that is the order of the log. What is written meanwhile may be left out. *settings* are further
    ones of the consumer, such as those of security. Brokers may come and go meanwhile. Raises: TimeoutError, with the
    last error of the client, when that takes longer than *limit_s*.
    """
    with consumer(bootstrap_servers, settings) as client:
        places = [place for topic in topics for place in reader.partitions_of(client, topic, limit_s=limit_s)]
        return [copied(message) for message in reader.read_to_end(client, places, limit_s=limit_s)]


def by_partition(messages: Iterable[Message]) -> dict[tuple[str, int], list[Message]]:
    """Return the messages of each topic and partition that has any, in order."""
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        found.setdefault(message.place, []).append(message)
    return found


def partitions_of(bootstrap_servers: str, topics: Iterable[str]) -> list[tuple[str, int]]:
    """Return every partition of *topics* as (topic, partition). Raises: KafkaException when one is not there."""
    with consumer(bootstrap_servers) as client:
        return [place for topic in topics for place in reader.partitions_of(client, topic)]


@contextmanager
def consumer(
    bootstrap_servers: str, settings: Mapping[str, str | int | float | bool] | None = None
) -> Iterator[Consumer]:
    """Yield a consumer of no group, which tells of ends of partitions and keeps quiet; for `assign`."""
    client = reader.open_consumer({"bootstrap.servers": bootstrap_servers, **(settings or {})})
    try:
        yield client
    finally:
        client.close()


def create_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int = 1,
    replication: int = -1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Return when *topic* is there and each of its partitions has a leader. *replication* -1 is as the broker likes."""
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(config or {}))
    with admin_client(bootstrap_servers) as admin:
        admin.create_topics([new], operation_timeout=30)[topic].result(_LIMIT_S)
    _await_partitions(bootstrap_servers, topic, partitions)


def add_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    """Return when *topic* has *total* partitions, each with a leader."""
    with admin_client(bootstrap_servers) as admin:
        admin.create_partitions([NewPartitions(topic, total)], operation_timeout=30)[topic].result(_LIMIT_S)
    _await_partitions(bootstrap_servers, topic, total)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Return when *topic* is gone."""
    with admin_client(bootstrap_servers) as admin:
        admin.delete_topics([topic], operation_timeout=30)[topic].result(_LIMIT_S)
        _await(lambda: topic not in admin.list_topics(timeout=10).topics, f"topic {topic} is still there")


def delete_topics(bootstrap_servers: str, prefix: str) -> None:
    """Delete every topic whose name begins with *prefix*; they may be there for a moment yet."""
    with admin_client(bootstrap_servers) as admin:
        topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(prefix)]
        for future in admin.delete_topics(topics).values() if topics else ():
            future.result(_LIMIT_S)


def _await_partitions(bootstrap_servers: str, topic: str, count: int) -> None:
    def led() -> bool:
        found = admin.list_topics(timeout=10).topics.get(topic)
        leaders = [partition.leader for partition in found.partitions.values()] if found else []
        return len(leaders) == count and min(leaders) >= 0

    with admin_client(bootstrap_servers) as admin:
        _await(led, f"topic {topic} does not come to {count} partitions with leaders")


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        pause.wait(0.02)


def copied(message: ClientMessage) -> Message:
    """Return the client's *message*, which is not an error, as ours."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = cast(Sequence[tuple[str, bytes | None]], message.headers() or ())
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple(headers),
        timestamp_ms=message.timestamp()[1],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    assert not isinstance(value, str)
    return value
