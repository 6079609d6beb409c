"""A topic, as its broker and its messages describe it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_LIMIT_S = 10.0


class KafkaTopic:
    """Reads offsets and times of topic *name*. Resolved marks count as messages.

    Times come from the messages: when the producer took them, in milliseconds of the machine's clock, which all
    processes share here. So a measurement of throughput needs no observer that would slow the feed down. A message is
    acknowledged a little later.
    """

    def __init__(self, brokers: str, name: str) -> None:
        self._brokers = brokers
        self.name = name

    def ends(self) -> dict[int, int]:
        """Return the end offset of every partition; nothing while the topic does not exist."""
        with closing(self._consumer()) as consumer:
            return self._ends(consumer)

    def first_time(self, since: Mapping[int, int]) -> float | None:
        """Return the time of the earliest message at or after the offsets *since*, None when there is none."""
        with closing(self._consumer()) as consumer:
            new = {number for number, end in self._ends(consumer).items() if end > since.get(number, 0)}
            return min(self._times(consumer, {number: since.get(number, 0) for number in new}), default=None)

    def last_time(self, since: Mapping[int, int]) -> float | None:
        """Return the time of the latest message at or after the offsets *since*, None when there is none."""
        with closing(self._consumer()) as consumer:
            ends = {number: end for number, end in self._ends(consumer).items() if end > since.get(number, 0)}
            return max(self._times(consumer, {number: end - 1 for number, end in ends.items()}), default=None)

    def consumer(self) -> Consumer:
        """Return a consumer that starts at the end of every partition. The caller closes it."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(self.name, number, end) for number, end in self._ends(consumer).items()])
        return consumer

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": f"bench-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 10,
                "log_level": 3,
            }
        )

    def _ends(self, consumer: Consumer) -> dict[int, int]:
        found = consumer.list_topics(self.name, timeout=_LIMIT_S).topics[self.name]
        if found.error is not None:
            if found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(found.error)
            return {}
        return {
            number: consumer.get_watermark_offsets(TopicPartition(self.name, number), timeout=_LIMIT_S)[1]
            for number in found.partitions
        }

    def _times(self, consumer: Consumer, offsets: Mapping[int, int]) -> Iterator[float]:
        for number, offset in offsets.items():
            consumer.assign([TopicPartition(self.name, number, offset)])
            message = consumer.poll(_LIMIT_S)
            if message is None:
                raise RuntimeError(f"{self.name}[{number}] has no message at {offset}")
            if message.error() is not None:
                raise KafkaException(message.error())
            yield message.timestamp()[1] / 1000
