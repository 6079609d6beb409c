"""A changefeed into Kafka, looked at through its topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.feed import Arrival, Feed
from benchmarks.kafka_topic import KafkaTopic
from benchmarks.workload import TABLE

__all__ = ["KafkaFeed"]


class KafkaFeed(Feed):
    """Writes JSON messages to a topic of its own, called *name* and the table."""

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
        """Return when the first message was handed to the producer; no row had been delivered by then."""
        first = self.topic.first_time(self._before)
        return None if first is None else Arrival(at=first, rows=0)
