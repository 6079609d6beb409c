"""Reads messages with a real consumer, byte for byte, and creates and deletes topics."""

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

_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A `value` of None is a tombstone. `timestamp_ms` comes from the broker."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    @property
    def stored(self) -> StoredMessage:
        """The message as a sink reader returns it."""
        return StoredMessage(topic=self.topic, partition=self.partition, key=self.key, value=self.value)


def read_topics(bootstrap_servers: str, topics: Iterable[str]) -> list[Message]:
    """Return all messages that *topics* hold now, in the order in which one consumer of all partitions gets them.

    Within a partition that is the order of the log. Messages that are written in the meantime may be missing.
    Brokers may fail and return during that. Raises: TimeoutError, with the last error of the client.
    """
    with consumer(bootstrap_servers) as client:
        places = [place for topic in topics for place in reader.partitions_of(client, topic, limit_s=_LIMIT_S)]
        return [copied(message) for message in reader.read_to_end(client, places, limit_s=_LIMIT_S)]


def partitions_of(bootstrap_servers: str, topics: Iterable[str]) -> list[tuple[str, int]]:
    """Return every partition of *topics* as (topic, partition). Raises: KafkaException when a topic does not exist."""
    with consumer(bootstrap_servers) as client:
        return [place for topic in topics for place in reader.partitions_of(client, topic)]


@contextmanager
def consumer(
    bootstrap_servers: str, settings: Mapping[str, str | int | float | bool] | None = None
) -> Iterator[Consumer]:
    """Yield a consumer without a group, for `assign`. It reports the ends of partitions and logs nothing."""
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
    """Create *topic* and return when each partition has a leader. *replication* -1 means the broker's default."""
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
    """Delete *topic* and return when the broker no longer lists it."""
    with admin_client(bootstrap_servers) as admin:
        admin.delete_topics([topic], operation_timeout=30)[topic].result(_LIMIT_S)
        _await(lambda: topic not in admin.list_topics(timeout=60).topics, f"topic {topic} still exists")


def delete_topics(bootstrap_servers: str, prefix: str) -> None:
    """Delete every topic whose name begins with *prefix*. The broker may list them for a moment longer."""
    with admin_client(bootstrap_servers) as admin:
        topics = [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(prefix)]
        for future in admin.delete_topics(topics).values() if topics else ():
            future.result(_LIMIT_S)


def _await_partitions(bootstrap_servers: str, topic: str, count: int) -> None:
    def led() -> bool:
        found = admin.list_topics(timeout=60).topics.get(topic)
        leaders = [partition.leader for partition in found.partitions.values()] if found else []
        return len(leaders) == count and min(leaders) >= 0

    with admin_client(bootstrap_servers) as admin:
        _await(led, f"topic {topic} does not have {count} partitions with leaders")


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        pause.wait(0.02)


def copied(message: ClientMessage) -> Message:
    """Return the client's *message*, which must not be an error, as a Message."""
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
