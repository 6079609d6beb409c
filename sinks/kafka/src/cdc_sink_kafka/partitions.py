"""Which partitions topics have now."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer

from cdc_core.errors import RetryableSinkError

__all__ = ["partitions_of"]

_LIMIT_S = 15.0
_WAIT_S = 0.2
_FEW = 16
"""Up to so many topics are asked for one by one; more with all topics that the brokers have, in one request."""


def partitions_of(producer: Producer, topics: Sequence[str]) -> dict[str, list[int]]:
    """Return the partitions of *topics* as the brokers know them now; *producer* can write to them from here on.

    A topic that the broker makes on demand is made. Raises: RetryableSinkError when the brokers cannot be asked or a
    topic does not come into being.
    """
    found: dict[str, list[int]] = {}
    if len(topics) > _FEW:
        found = _ask(producer, None)
    deadline = time.monotonic() + _LIMIT_S
    for topic in topics:
        while not found.get(topic):
            found |= _ask(producer, topic)
            if found.get(topic):
                break
            if time.monotonic() > deadline:
                raise RetryableSinkError(f"topic '{topic}' does not exist, and was not made in {_LIMIT_S:g} s")
            producer.poll(_WAIT_S)
    return {topic: found[topic] for topic in topics}


def _ask(producer: Producer, topic: str | None) -> dict[str, list[int]]:
    try:
        metadata = producer.list_topics(topic, timeout=_LIMIT_S)
    except KafkaException as error:
        raise RetryableSinkError(f"the brokers did not say which partitions there are: {error.args[0].str()}") from None
    return {name: sorted(about.partitions) for name, about in metadata.topics.items()}
