"""Which partitions topics have now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException

from cdc_core import RetryableSinkError
from cdc_sink_kafka.failures import Failure, sink_error
from cdc_sink_kafka.ordered_producer import OrderedProducer

_LIMIT_S = 15.0
_WAIT_S = 0.2
_FEW = 16
"""Up to this many topics are asked for one by one, every time."""
_FRESH_S = 2.0
"""For more topics, all topics of the brokers are asked for at once, at most this often."""


class Partitions:
    """Looks up the partitions of topics. After that *client* can write to them."""

    def __init__(self, producer: OrderedProducer, *, watch: Callable[[], None] | None = None) -> None:
        """*watch* is called again and again while a topic is missing, and may raise a CdcError."""
        self._producer = producer
        self._watch = watch
        self._all: dict[str, list[int]] = {}
        self._read_at = float("-inf")
        self._unseen: KafkaError | None = None

    def of(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the partitions of *topics*. From now on the client can write to them.

        The answer is of this moment; for more than a few topics it may be two seconds old. A topic that the broker
        creates on demand is created. Raises: RetryableSinkError when the brokers do not answer or a topic is not
        created; TerminalSinkError when they refuse the connection or the user may not see a topic, and what *watch*
        raises.
        """
        found: dict[str, list[int]] = {}
        if len(topics) > _FEW:
            if time.monotonic() - self._read_at > _FRESH_S:
                self._all, self._read_at = self._ask(None), time.monotonic()
            found = self._all
        return {topic: found.get(topic) or self._awaited(topic) for topic in topics}

    def _awaited(self, topic: str) -> list[int]:
        deadline = time.monotonic() + _LIMIT_S
        while not (found := self._ask(topic).get(topic)):
            if self._unseen is not None and self._unseen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                failure = Failure(code=self._unseen.code(), reason=self._unseen.str(), topic=topic)
                raise sink_error(failure, f"topic '{topic}' cannot be looked up")
            if time.monotonic() > deadline:
                raise RetryableSinkError(
                    f"topic '{topic}' does not exist, and was not created in {_LIMIT_S:g} s", outage=False
                )
            if self._watch is not None:
                self._watch()
            self._producer.client.poll(_WAIT_S)
        return found

    def _ask(self, topic: str | None) -> dict[str, list[int]]:
        try:
            metadata = self._producer.client.list_topics(topic, timeout=_LIMIT_S)
        except KafkaException as error:
            reason = error.args[0].str()
            raise self._producer.no_answer(
                f"the brokers did not return the partitions of the topics: {reason}"
            ) from None
        about = metadata.topics.get(topic) if topic is not None else None
        self._unseen = None if about is None else about.error
        return {name: sorted(found.partitions) for name, found in metadata.topics.items()}
