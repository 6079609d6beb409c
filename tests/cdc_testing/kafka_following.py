"""A consumer that follows topics through failures of brokers and knows what is resolved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from cdc_conformance.validators import SeenMark, SeenRow, events
from cdc_testing.decoders import KEYED, json_decoder
from cdc_testing.kafka_reading import consumer, copied
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from cdc_core import Decoder, Timestamp

Place = tuple[str, int]


class Follower:
    """A context manager that reads *topics* from the beginning, including partitions that are added later.

    `rows` (which includes `repeats`) and `marks` count the messages. `resolved` has the last mark of every partition,
    `places` the partitions that have rows. The rule for added partitions: first all known partitions must show a mark,
    then the partitions are looked up again, and all of them must show it. This is enough, because a row below the mark
    is in a partition that existed when the mark was written.
    """

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], *, decoder: Decoder | None = None) -> None:
        self.rows = self.repeats = self.marks = 0
        self.resolved: dict[Place, Timestamp] = {}
        self.places: set[Place] = set()
        self._topics = tuple(topics)
        self._decoder = decoder or json_decoder()
        self._schemas = dict.fromkeys(self._topics, KEYED)
        self._cut = Timestamp()
        self._seen: set[tuple[str, tuple[Any, ...], Timestamp]] = set()
        self._context = consumer(bootstrap_servers, {"enable.partition.eof": False, "reconnect.backoff.max.ms": 200})

    def __enter__(self) -> Self:
        self._client = self._context.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._context.__exit__(kind, error, trace)

    def read(self) -> int:
        """Read what is available now, or wait a moment, and return the number of rows so far."""
        if not self.resolved and not self._look_for_partitions():
            return 0
        # after an error the client continues by itself when a broker is available
        read = [copied(message) for message in self._client.consume(20_000, timeout=0.05) if message.error() is None]
        for event in events((message.stored for message in read), self._decoder, self._schemas):
            self._note(event)
        return self.rows

    def cut(self) -> Timestamp:
        """Read, and return the timestamp up to which every partition of every topic is resolved."""
        self.read()
        if min(self.resolved.values(), default=Timestamp()) > self._cut and self._look_for_partitions():
            self._cut = max(self._cut, min(self.resolved.values()))
        return self._cut

    def _note(self, event: SeenRow | SeenMark) -> None:
        assert event.topic is not None
        assert event.partition is not None
        place = (event.topic, event.partition)
        if isinstance(event, SeenMark):
            self.marks += 1
            self.resolved[place] = max(self.resolved[place], event.resolved)
            return
        identity = (event.topic, event.key, event.updated)
        self.rows += 1
        self.places.add(place)
        self.repeats += identity in self._seen
        self._seen.add(identity)

    def _look_for_partitions(self) -> bool:
        """Start to read new partitions. Return whether a broker answers and all topics exist."""
        try:
            found = self._client.list_topics(timeout=1).topics
        except KafkaException:
            return False
        if any(topic not in found for topic in self._topics):
            return False
        places = [(topic, partition) for topic in self._topics for partition in sorted(found[topic].partitions)]
        new = [place for place in places if place not in self.resolved]
        if new:
            self._client.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in new])
            self.resolved.update(dict.fromkeys(new, Timestamp()))
        return True
