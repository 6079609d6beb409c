"""A producer that keeps the order of messages and reports every failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_core import CdcError, ContractError, RetryableSinkError, TerminalSinkError, TracedRow
from cdc_sink_kafka.background_close import close_in_background
from cdc_sink_kafka.client_log import ClientLog
from cdc_sink_kafka.delivery_reports import DeliveryReports
from cdc_sink_kafka.failures import Failure, opening, sink_error

_POLL_S = 0.1
_SLOW_S = 1.0
"""A wait that lasts longer than this may have a cause that only `watch` finds."""
_LAST_REPORTS_S = 1.0
_NO_CALLBACKS: Mapping[int, Any] = MappingProxyType({})


class OrderedProducer:
    """Queues messages in order and waits until they are acknowledged.

    The first call after a failure raises, and so does every later call: no message after the failed one of its
    partition was or will be written. Emit the rows again, with a new producer.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        stall_s: float,
        log: ClientLog,
        explain: Callable[[Failure], CdcError | None] | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """Take librdkafka's *properties*. A wait ends after *stall_s* seconds without an acknowledgement, not
        counting those that a quota demands.

        *explain* may return a better error for a failure than the general one. *watch* is called again and again while
        no message is acknowledged, and may raise a CdcError.
        """
        self._stall_s = stall_s
        self._explain = explain or _unexplained
        self._watch = watch
        self._log = log
        self._reports = DeliveryReports()
        self._error: CdcError | None = None
        self._uncounted = 0
        self._max_uncounted = properties["queue.buffering.max.kbytes"] * 1024
        with opening(TerminalSinkError):
            self._producer = Producer({**properties, **log.properties(), "on_delivery": self._reports.on_delivery})

    @property
    def client(self) -> Producer:
        """The client, for reading metadata."""
        return self._producer

    def no_answer(self, text: str) -> CdcError:
        """Return the error for a request that brokers do not answer, as *text* says."""
        self._guarded("poll", 0)
        return self._log.failure(text)

    def following(self, row: TracedRow) -> Callable[[KafkaError | None, Message], None]:
        """Return the callback of the message of *row*, for `send`."""
        return self._reports.following(row)

    def send(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[list[tuple[str, bytes | None]]] | None = None,
        callbacks: Mapping[int, Callable[[KafkaError | None, Message], None]] = _NO_CALLBACKS,
    ) -> None:
        """Return when the messages are queued, in order, some with *callbacks* by index. Without headers it is faster.

        Raises: RetryableSinkError, TerminalSinkError, also for messages of earlier calls.
        """
        self._serve(0)
        if headers is not None:  # `produce_batch` takes none
            for place, (key, value, own) in enumerate(zip(keys, values, headers, strict=True)):
                told = {"on_delivery": callbacks[place]} if place in callbacks else {}
                self.send_one(topic, key=key, value=value, headers=own, **told)
            return
        messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        for place, callback in callbacks.items():
            messages[place]["callback"] = callback
        while messages:
            queued = self._producer.produce_batch(topic, messages)
            if queued == len(messages):
                return
            error = messages[queued].get("_error")
            messages = messages[queued:]
            if not all(message.pop("_error", None) for message in messages):
                raise ContractError("confluent-kafka queued a message after a message that it refused")
            self._refused(error, topic, messages[0]["key"])

    def make_room(self, nbytes: int) -> None:
        """Return when the buffer has room for *nbytes* of keys and headers. Raises: as `send`.

        librdkafka counts only the bytes of values. So once the keys and headers would fill a buffer of their own, wait
        until the queue is empty.
        """
        self._uncounted += nbytes
        if self._uncounted > self._max_uncounted:
            self._await(0, "flush")
            self._uncounted = nbytes

    def send_one(self, topic: str, **fields: Any) -> None:
        """Return when one message is queued; *fields* are those of `Producer.produce`. Raises: as `send`."""
        self._raise_failed()
        while True:
            try:
                self._producer.produce(topic, **fields)
                return
            except BufferError:
                self._await_room()
            except KafkaException as error:
                self._refused(error.args[0], topic, fields.get("key"))

    def flush(self) -> None:
        """Return when every message is acknowledged. Raises: as `send`."""
        self._serve(0)
        self._await(0, "flush")
        self._uncounted = 0
        self._log.forget()

    def close(self) -> None:
        """Drop what is not acknowledged and release the connections. Does not wait for brokers."""
        if not hasattr(self, "_producer"):
            return
        if self._error is None:
            self._error = RetryableSinkError("the connection to Kafka is closed")
        self._guarded("purge")
        self._guarded("flush", 0)
        last = [self._producer]
        del self._producer
        close_in_background(last)

    def _serve(self, timeout_s: float) -> None:
        self._raise_failed()
        self._guarded("poll", timeout_s)
        self._raise_failures()

    def _guarded(self, method: Literal["poll", "flush", "purge"], *arguments: float) -> None:
        """Call a method of the client and keep the fatal error that it may raise.

        confluent-kafka raises a KafkaException. Before Python 3.12 it raises a bare KafkaError instead, which is not
        an exception class, so an `except` with a class does not catch it. Sometimes the error is lost in between;
        Python then raises SystemError.
        """
        try:
            getattr(self._producer, method)(*arguments)
        except:  # noqa: E722
            raised = sys.exc_info()[1]
            error = raised.args[0] if isinstance(raised, KafkaException) else raised
            if isinstance(error, SystemError):
                error = KafkaError(KafkaError._FATAL, "the client failed without giving a reason")
            if not isinstance(error, KafkaError):
                raise
            self._reports.keep(Failure.of_client(error))

    def _refused(self, error: KafkaError | None, topic: str, key: bytes | None) -> None:
        """Return when there is room again, if the queue was full. Raises: for every other *error*."""
        if error is not None and error.code() == KafkaError._QUEUE_FULL:
            self._await_room()
            return
        self._guarded("flush", _LAST_REPORTS_S)
        self._raise_failures()
        code = KafkaError._FAIL if error is None else error.code()
        reason = "the client refused it" if error is None else error.str()
        failure = Failure(code=code, reason=reason, topic=topic, key=key)
        self._fail(self._explain(failure) or sink_error(failure, f"a message to topic '{topic}' cannot be queued"))

    def _await_room(self) -> None:
        """Return when an eighth of the full queue is free again."""
        full = len(self._producer)
        if full == 0:
            self._fail(TerminalSinkError("a message is larger than buffer_size allows; raise buffer_size"))
        self._await(full - max(1, full // 8), "poll")

    def _await(self, most: int, wait: Literal["poll", "flush"]) -> None:
        """Return when at most *most* messages are not acknowledged."""
        left, since = len(self._producer), time.monotonic()
        while left > most:
            self._guarded(wait, _POLL_S)
            self._raise_failures()
            before, left = left, len(self._producer)
            if left < before:
                since = time.monotonic()
                self._log.forget()
            elif time.monotonic() > max(since, self._log.throttled_until) + self._stall_s:
                self._guarded("purge")  # nothing more is written while the reason is looked up
                what = f"Kafka has acknowledged no message for {self._stall_s:g} s; {left} waiting"
                error, stall = self._log.failure(what), Failure(code=KafkaError._TIMED_OUT, reason=what)
                self._fail(error if error.repairable else self._explain(stall) or error)
            elif self._watch is not None and time.monotonic() > since + _SLOW_S:
                try:
                    self._watch()
                except CdcError as error:
                    self._fail(error)
        self._raise_failures()

    def _fail(self, error: CdcError) -> None:
        self._error = error
        raise error

    def _raise_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _raise_failures(self) -> None:
        self._raise_failed()
        if not self._reports:
            return
        explained = self._explain(self._reports.cause())
        if explained is not None:  # the other failures add nothing to it
            self._fail(explained)
        self._guarded("flush", _LAST_REPORTS_S)  # the other messages fail too: wait for their reports
        cause = self._reports.cause()
        count = max(1, self._reports.total)
        what = f"{count} {'message was' if count == 1 else 'messages were'} not delivered to Kafka"
        others = self._reports.summary()
        if others:
            what += f" ({others})"
        self._fail(self._explain(cause) or sink_error(cause, f"{what}, the first to topic '{cause.topic}'"))


def _unexplained(_: Failure) -> None:
    return None
