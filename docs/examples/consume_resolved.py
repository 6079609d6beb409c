"""Follows the topics of a changefeed and returns cuts: the changes from one state of the database to a later one.

python consume_resolved.py localhost:9092 accounts closed
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition


class Row(NamedTuple):
    updated: str  # nanoseconds since 1970 and a counter; compare as text
    topic: str
    key: bytes
    after: dict[str, Any] | None  # None: the row was deleted
    place: tuple[str, int]
    offset: int


class ResolvedReader:
    """Pass the last cut that was applied as *after*: rows up to that cut are ignored when they arrive again."""

    def __init__(self, brokers: str, topics: Sequence[str], *, group: str, after: str = "") -> None:
        self.cut, self._topics = after, topics
        self._resolved: dict[tuple[str, int], str] = {}  # the last mark of each partition, of all topics
        self._next: dict[tuple[str, int], int] = {}  # the offset after the last message that was read
        self._held: list[Row] = []
        settings = {"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False}
        settings["auto.offset.reset"] = "error"  # after the loss of unread rows no cut is correct
        self._consumer = Consumer(settings)

    def poll(self, timeout_s: float) -> list[Row] | None:
        """Return the changes that lead to the state at `self.cut`, oldest first, or None when the cut has not moved."""
        for message in self._consumer.consume(5000, timeout_s):
            if message.error() is not None:
                raise KafkaException(message.error())
            place, value = (message.topic(), message.partition()), json.loads(message.value())
            self._next[place] = message.offset() + 1
            if message.key() is None:
                self._resolved[place] = max(self._resolved[place], value["resolved"])
            elif value["updated"] > self.cut:  # any other row is a repeat
                row = Row(value["updated"], place[0], message.key(), value["after"], place, message.offset())
                self._held.append(row)
        least = min(self._resolved.values(), default="")
        # a row below these marks is in a partition that existed before them, so look for new partitions only now
        if (self._resolved and least <= self.cut) or self._found_partitions():
            return None
        self.cut = least
        due = sorted((row for row in self._held if row.updated <= least), key=lambda row: row.updated)
        self._held = [row for row in self._held if row.updated > least]
        return due

    def commit(self) -> None:
        """Let a later reader start here. Call it after the last cut was applied and saved."""
        start = dict(self._next)
        for row in self._held:
            start[row.place] = min(start[row.place], row.offset)
        if start:
            offsets = [TopicPartition(*place, offset) for place, offset in start.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def _found_partitions(self) -> bool:
        topics = self._consumer.list_topics(timeout=10).topics
        there = {(name, number) for name in self._topics if name in topics for number in topics[name].partitions}
        new = [TopicPartition(*place) for place in sorted(there - self._resolved.keys())]
        for place in self._consumer.committed(new, timeout=10) if new else ():
            place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
            self._resolved[place.topic, place.partition] = ""
            self._consumer.incremental_assign([place])
        return bool(new) or not self._resolved


if __name__ == "__main__":
    reader = ResolvedReader(sys.argv[1], sys.argv[2:], group="example")
    while True:
        rows = reader.poll(timeout_s=1.0)
        if rows is not None:
            print(f"{reader.cut}: {len(rows)} changes")
