"""Reads topics as a consumer does."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc_core import Endpoint, SinkContext, SinkReader, StoredMessage, counted
from cdc_sink_kafka.clients import Settings

_LIMIT_S = 60.0
_POLL_S = 0.2
_NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION)
_PROPERTIES: dict[str, Any] = {
    "group.id": "reader",  # required by the client; it never joins the group
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 20,
    "queued.min.messages": 1_000_000,
    "log_level": 0,
}
_quiet = logging.getLogger(f"{__name__}.client")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class KafkaReader(SinkReader):
    """Returns every message in the topics of the changefeed's tables, each partition in order.

    Brokers may fail and return during that. Raises: ConfigError for a URI or options that the sink refuses too;
    TimeoutError, with the last error of the client, when the brokers return nothing for a minute;
    KafkaException when they do not answer.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._settings = Settings.of(context)
        self._consumer: Consumer | None = None

    def read(self) -> Iterator[StoredMessage]:
        """Yield what the partitions hold now. May include messages that are written in the meantime."""
        client = self._open()
        for message in read_to_end(client, self._places(client)):
            topic, partition = message.topic(), message.partition()
            yield StoredMessage(
                topic=topic, partition=partition, key=_bytes(message.key()), value=_bytes(message.value())
            )

    def endpoints(self) -> Collection[Endpoint]:
        """Return every partition of the topics that exist."""
        return self._places(self._open())

    def truncated(self) -> Collection[Endpoint]:
        """Return the partitions of which retention, or somebody, has removed messages: they do not begin at 0."""
        client = self._open()
        deadline = time.monotonic() + _LIMIT_S
        return [place for place in self._places(client) if _watermarks(client, TopicPartition(*place), deadline)[0] > 0]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = open_consumer(self._settings.client())
        return self._consumer

    def _places(self, client: Consumer) -> list[tuple[str, int]]:
        places: list[tuple[str, int]] = []
        for topic in self._settings.topic_names:
            try:
                places += partitions_of(client, topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return places


def open_consumer(properties: Mapping[str, Any]) -> Consumer:
    """Return a consumer without a group, for `assign`. It reports the ends of partitions and logs nothing."""
    return Consumer({**_PROPERTIES, **properties}, logger=_quiet)


def partitions_of(client: Consumer, topic: str, *, limit_s: float = _LIMIT_S) -> list[tuple[str, int]]:
    """Return the partitions of *topic*, as (topic, partition). Raises: KafkaException when it does not exist."""
    found = client.list_topics(topic, timeout=limit_s).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return [(topic, partition) for partition in sorted(found.partitions)]


def read_to_end(client: Consumer, places: Iterable[tuple[str, int]], *, limit_s: float = _LIMIT_S) -> Iterator[Message]:
    """Yield all messages that *places* hold now, in the order in which one consumer of all of them gets them.

    Raises: TimeoutError, with the last error of the client, after *limit_s* seconds without a message.
    """
    ends = _ends(client, places, limit_s)
    client.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in ends])
    trouble = ""
    deadline = time.monotonic() + limit_s
    while ends:
        if time.monotonic() > deadline:
            left = counted(len(ends), "partition")
            raise TimeoutError(f"{left} not read to the end, no message for {limit_s:.0f} s: {ends} {trouble}")
        for message in client.consume(20_000, timeout=_POLL_S):
            error = message.error()
            if error is None:
                yield message
                deadline = time.monotonic() + limit_s
                _reach(ends, message, (message.offset() or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                _reach(ends, message, message.offset() or 0)
            else:
                trouble = str(error)
    client.unassign()


def _ends(client: Consumer, places: Iterable[tuple[str, int]], limit_s: float) -> dict[tuple[str, int], int]:
    """Return the high watermark of every partition that is not empty."""
    ends = {}
    deadline = time.monotonic() + limit_s
    for topic, partition in places:
        low, high = _watermarks(client, TopicPartition(topic, partition), deadline)
        if high > low:
            ends[topic, partition] = high
    return ends


def _watermarks(client: Consumer, place: TopicPartition, deadline: float) -> tuple[int, int]:
    """Return the first and the next offset of a partition. Waits for a leader, as after a broker's restart."""
    while True:
        left = deadline - time.monotonic()
        try:
            return client.get_watermark_offsets(place, timeout=max(left, _POLL_S))
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER or left < 0:
                raise
        time.sleep(_POLL_S)


def _reach(ends: dict[tuple[str, int], int], message: Message, position: int) -> None:
    """Remove a partition from *ends* when *position* is its end. A new leader may first report an earlier end."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    if position >= ends.get((topic, partition), position + 1):
        del ends[topic, partition]


def _bytes(value: str | bytes | None) -> bytes | None:
    assert not isinstance(value, str)
    return value
