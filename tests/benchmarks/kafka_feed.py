"""A changefeed into Kafka, measured through its topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.feed import Arrival, Feed
from benchmarks.kafka_topic import KafkaTopic
from benchmarks.workload import TABLE


class KafkaFeed(Feed):
    """Writes JSON messages to its own topic. The topic is named after *name* and the table."""

    def __init__(
        self, directory: Path, uri: str, *, brokers: str, name: str, options: Mapping[str, Any] | None = None
    ) -> None:
        prefix = f"{name}."
        self.topic = KafkaTopic(brokers, prefix + TABLE.partition(".")[2])
        self._before: dict[int, int] = {}
        super().__init__(directory, uri, sink=f"kafka://{brokers}?topic_prefix={prefix}", options=options)

    def look_before(self) -> None:
        self._before = self.topic.ends()

    def first_arrival(self) -> Arrival | None:
        """Return when the producer took the first message. No row had been delivered before that."""
        first = self.topic.first_time(self._before)
        return None if first is None else Arrival(at=first, rows=0)
