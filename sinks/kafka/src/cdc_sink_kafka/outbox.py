"""Messages on their way to the brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_core.errors import CdcError, ContractError, RetryableSinkError
from cdc_sink_kafka.failures import is_consequence, sink_error

__all__ = ["Failure", "Outbox"]

log = logging.getLogger(__name__)

_POLL_S = 0.1
_KEPT_FAILURES = 3
_LAST_REPORTS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A message that was not delivered."""

    error: KafkaError
    topic: str
    partition: int | None
    key: bytes | None
    nbytes: int

    def __str__(self) -> str:
        place = self.topic if self.partition is None or self.partition < 0 else f"{self.topic}[{self.partition}]"
        return f"{place}: {self.error.str()}"


class Outbox:
    """A producer that takes messages in order and knows what became of them.

    Success is silent; what fails is kept until the next call, which raises. After that every call raises: what stands
    behind a failed message is not delivered either, so the rows must be read again, by a new outbox.
    """

    def __init__(self, properties: Mapping[str, Any], *, stall_s: float) -> None:
        """Take librdkafka's *properties*. A wait ends after *stall_s* seconds in which nothing was acknowledged."""
        self._stall_s = stall_s
        self._failures: list[Failure] = []
        self._failed = 0
        self._error: CdcError | None = None
        self._trouble: KafkaError | None = None
        self._producer = Producer(
            {**properties, "on_delivery": self._on_delivery, "error_cb": self._on_error, "logger": log}
        )

    def __len__(self) -> int:
        """Return how many messages are not acknowledged."""
        return len(self._producer)

    @property
    def producer(self) -> Producer:
        """The client, for reading metadata."""
        return self._producer

    def send(self, topic: str, messages: list[dict[str, Any]]) -> None:
        """Return when all of *messages*, dicts of key and value, are queued, in order.

        Raises: RetryableSinkError, TerminalSinkError, also for messages of earlier calls.
        """
        self._serve()
        while messages:
            queued = self._producer.produce_batch(topic, messages)
            if queued == len(messages):
                return
            messages = messages[queued:]
            error = messages[0].pop("_error", None)
            if error is None or any("_error" not in message for message in messages[1:]):
                raise ContractError("confluent-kafka queued a message behind one that it did not take")
            for message in messages[1:]:
                del message["_error"]
            self._refused(error, topic)

    def send_one(self, topic: str, **fields: Any) -> None:
        """Return when one message is queued; *fields* are those of `Producer.produce`."""
        self._serve()
        while True:
            try:
                self._producer.produce(topic, **fields)
                return
            except BufferError:
                self._await_room()
            except KafkaException as error:
                self._refused(error.args[0], topic)

    def flush(self) -> None:
        """Return when every message is acknowledged. Raises: as `send`."""
        self._serve()
        left, deadline = len(self._producer), time.monotonic() + self._stall_s
        while left:
            now_left = self._producer.flush(_POLL_S)
            self._raise_failures()
            if now_left < left:
                deadline = time.monotonic() + self._stall_s
            left = now_left
            if left and time.monotonic() > deadline:
                self._stalled(left)

    def close(self) -> None:
        """Give up what is not acknowledged and let go of the connections. Does not wait for brokers."""
        if self._error is None:
            self._error = RetryableSinkError("the producer is closed")
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(0)

    def _serve(self) -> None:
        self._producer.poll(0)
        self._raise_failures()

    def _refused(self, error: KafkaError, topic: str) -> None:
        """Return when there is room again, if the queue was full. Raises: whatever else *error* is."""
        if error.code() == KafkaError._QUEUE_FULL:
            self._await_room()
            return
        self._raise_failures()
        if is_consequence(error):
            self._await_reports()
        self._error = sink_error(error, f"topic {topic} takes no message")
        raise self._error

    def _await_room(self) -> None:
        """Return when an eighth of the full queue is free again."""
        full = left = len(self._producer)
        deadline = time.monotonic() + self._stall_s
        while left > full - max(1, full // 8):
            self._producer.poll(_POLL_S)
            self._raise_failures()
            now_left = len(self._producer)
            if now_left < left:
                deadline = time.monotonic() + self._stall_s
            left = now_left
            if time.monotonic() > deadline:
                self._stalled(left)

    def _stalled(self, left: int) -> None:
        trouble = "" if self._trouble is None else f": {self._trouble.str()}"
        self._error = RetryableSinkError(
            f"no message was acknowledged by Kafka for {self._stall_s:g} s, {left} are waiting{trouble}"
        )
        raise self._error

    def _raise_failures(self) -> None:
        if self._error is not None:
            raise self._error
        if self._failed:
            self._await_reports()
            raise self._error_of(self._failures)

    def _await_reports(self) -> None:
        """Hear what became of the other messages, which fail too, for the sake of a full account."""
        self._producer.flush(_LAST_REPORTS_S)

    def _error_of(self, failures: Sequence[Failure]) -> CdcError:
        self._error = sink_error(
            failures[0].error,
            f"{self._failed} messages were not delivered, the first to topic {failures[0].topic}",
        )
        return self._error

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self._failed += 1
        if len(self._failures) < _KEPT_FAILURES or is_consequence(self._failures[0].error):
            failure = Failure(
                error=error,
                topic=message.topic() or "",
                partition=message.partition(),
                key=message.key(),
                nbytes=len(message.value() or b"") + len(message.key() or b""),
            )
            self._failures.append(failure)
            self._failures.sort(key=lambda failure: is_consequence(failure.error))
            del self._failures[_KEPT_FAILURES:]

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error
        log.warning("Kafka client: %s", error.str())
