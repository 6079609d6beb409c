"""What a producer reports about messages that were not delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import KafkaError, Message

from cdc_core import TracedRow
from cdc_sink_kafka.failures import Failure

_MAX_KEPT = 100
_MAX_SHOWN = 3


class DeliveryReports:
    """Counts the failures of a producer and keeps the first ones, causes before consequences.

    It is separate from `OrderedProducer` because the client refers to it. A client in a cycle of references would
    live, with its threads and connections, until the next garbage collection.
    """

    def __init__(self) -> None:
        self._failures: list[Failure] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._failures)

    @property
    def total(self) -> int:
        """How many messages are known to have failed."""
        return self._counts.total()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report."""
        if error is not None:
            self._counts[message.topic() or "", error.str()] += 1
            self.keep(Failure.of_report(error, message))

    def following(self, row: TracedRow) -> Callable[[KafkaError | None, Message], None]:
        """Return what takes the report of one message and tells *row* of it too."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self.on_delivery(error, message)
            if error is None:
                row.acknowledged(topic=message.topic(), partition=message.partition(), offset=message.offset())

        return on_delivery

    def keep(self, failure: Failure) -> None:
        """Keep *failure*. Once the list is full, a cause replaces a consequence and everything else is dropped."""
        if len(self._failures) < _MAX_KEPT or (self._failures[-1].consequence and not failure.consequence):
            self._failures.append(failure)
            self._failures.sort(key=lambda kept: kept.consequence)
            del self._failures[_MAX_KEPT:]

    def cause(self) -> Failure:
        """Return the first failure that is not a consequence of another one, with everything known about it."""
        failures = sorted(self._failures, key=lambda failure: (failure.consequence, failure.messages == 0))
        first = failures[0]
        same = [failure for failure in failures if (failure.topic, failure.code) == (first.topic, first.code)]
        key = next((failure.key for failure in same if failure.key is not None), None)
        return replace(first, messages=first.messages or self._counts[first.topic, first.reason], key=key)

    def summary(self) -> str:
        """Return the most common reasons, each with its topic and its number of messages."""
        reasons = [f"{topic}: {reason} ({count})" for (topic, reason), count in self._counts.most_common(_MAX_SHOWN)]
        return ", ".join(reasons)
