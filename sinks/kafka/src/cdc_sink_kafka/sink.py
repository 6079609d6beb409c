"""The part of the Kafka sink that runs in tasks: it writes rows as messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import (
    CdcError,
    Flushed,
    MessageBatch,
    RefusedRow,
    RefusedRowsError,
    RowBatch,
    Sink,
    SinkContext,
    TerminalSinkError,
)
from cdc_sink_kafka.clients import Settings
from cdc_sink_kafka.failures import Failure, refused_rows
from cdc_sink_kafka.headers import Header, Headers, sizes_of
from cdc_sink_kafka.ordered_producer import OrderedProducer
from cdc_sink_kafka.producers import Producers
from cdc_sink_kafka.routed_topics import RoutedTopics
from cdc_sink_kafka.size_limits import SizeLimits
from cdc_sink_kafka.tombstones import deleted_rows, traced_messages, with_tombstones
from cdc_sink_kafka.topic_deletion_check import TopicDeletionCheck

_CHUNK = 2_000
"""Messages that become Python objects at a time: few enough to stay in the processor's cache."""


class KafkaSink(Sink):
    """Writes each row as a message to the topic of its table, in order within each partition.

    With `tombstones_on_delete` the message of a deleted row is followed by one without a value. Both are of one row:
    when it is emitted again, both are written again, in the same order.

    The order holds through failures: after a failed message nothing is written to its partition. When the step is
    repeated, no version of a row appears for the first time after a newer one. This needs `RequiredAcks` ALL, the
    default. A writer holds at most `buffer_size` bytes of values, as much again of keys and headers, and one chunk of
    rows as Python objects.

    `flush` lists the messages that are too large for the client. When a broker refuses a message, the client ends and
    can no longer say what became of the others: then no row since the last flush counts, and a new client takes them
    from the first one.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._settings = Settings.of(context)
        self._topics = TopicDeletionCheck(self._settings)
        self._routed = RoutedTopics(self._settings)
        self._batches_too_large = False
        self._producers = Producers(self._new_producer)
        self._limits: SizeLimits | None = None
        self._headers: Headers | None = None
        self._refused: list[RefusedRow] = []
        self._given = 0
        self._messages = 0
        self._bytes = 0
        self._closed = False

    def admit(self, topic: str) -> str | None:
        """Create the topic if need be. Later batches are small enough for it."""
        self._require_open()
        reason = self._routed.admit(topic)
        if reason is None:
            name = self._routed.full_name(topic)
            self._topics.add([name])
            if self._limits is not None:
                limit = self._routed.limit(name)
                self._batches_too_large |= self._limits.learn(name, limit, wanted=self._wanted_batch)
        return reason

    def emit(self, rows: RowBatch) -> None:
        """Queue *rows*. Waits while the queue is full."""
        self._require_open()
        if len(rows) == 0:
            return
        traced = dict(self.context.traced_rows(rows))
        if self._limits is None or self._headers is None:
            self._limits, self._headers = self._open()
        elif self._batches_too_large:
            with self._dropped_when_refused():
                self._producers.flush()
            self._producers.close()
        with self._dropped_when_refused():
            producer = self._producers.of_rows(traced=bool(traced))
        payload = self._headers.payload(rows)
        batch = self.context.encoder.encode(payload, topic=self._settings.topics.of_rows(rows))
        headers = self._headers.of(rows, batch)
        deleted = deleted_rows(rows, batch) if self._settings.options.tombstones_on_delete else None
        sizes = None if headers is None else sizes_of(headers)
        first, self._given = self._given, self._given + len(rows)
        measured = self._limits.measure(rows, batch, sizes, first=first)
        if measured.unsendable:
            self._refused += [
                RefusedRow(index=first + place, reason=reason) for place, reason in measured.unsendable.items()
            ]
            batch, headers, deleted = _without(batch, headers, deleted, measured.unsendable)
            sizes = None if headers is None else sizes_of(headers)
        messages = traced_messages(traced, count=len(rows), unsendable=measured.unsendable, deleted=deleted)
        callbacks = {place: producer.following(row) for place, row in messages.items()}
        self._bytes += measured.nbytes
        if deleted is not None and deleted.true_count:
            self._bytes += pc.sum(pc.binary_length(batch.key.filter(deleted))).as_py()
            batch, headers = with_tombstones(batch, headers, deleted, of_events=self._settings.of_events)
            sizes = None if headers is None else sizes_of(headers)
        self._messages += len(batch)
        with self._dropped_when_refused():
            producer.make_room(batch.key.nbytes + (0 if sizes is None else int(sizes.sum())))
            for start in range(0, len(batch), _CHUNK):
                end = start + _CHUNK
                producer.send(
                    batch.topic,
                    batch.key.slice(start, _CHUNK).to_pylist(),
                    batch.value.slice(start, _CHUNK).to_pylist(),
                    None if headers is None else headers[start:end],
                    {place - start: callback for place, callback in callbacks.items() if start <= place < end},
                )

    def flush(self) -> Flushed:
        """Return when every message is acknowledged. Counts the bytes of keys and values, before compression."""
        self._require_open()
        if self._limits is not None:
            with self._dropped_when_refused():
                self._producers.flush()
            self._topics.check()
            self._limits.forget()
        flushed = Flushed(messages=self._messages, bytes=self._bytes, refused=tuple(self._refused))
        self._reset_counts()
        return flushed

    def close(self) -> None:
        """Drop what was not flushed. Does not wait for brokers."""
        self._drop()
        self._topics.close()
        self._routed.close()
        self._closed = True

    @property
    def _wanted_batch(self) -> int | None:
        """The size of batches that the user asks for."""
        wanted: int | None = self._settings.producer().get("batch.size")
        return wanted

    def _open(self) -> tuple[SizeLimits, Headers]:
        self._topics.check(now=True)
        properties = self._settings.producer()
        with self._settings.administrator() as administrator:
            limits = administrator.limits([*self._settings.topic_names, *self._routed.names])
        own = {
            "Flush.MaxBytes in kafka_sink_config": properties["message.max.bytes"],
            "buffer_size": properties["queue.buffering.max.kbytes"] * 1024,
        }
        sizes = SizeLimits(self._settings.client()["bootstrap.servers"], limits, options=own)
        return sizes, self._settings.headers()

    def _new_producer(self, traced: bool) -> OrderedProducer:
        """Return a producer whose batches are small enough for every topic that `_limits` knows.

        One for *traced* rows gets a report of each message, not only of those that fail.
        """
        sizes = self._limits
        assert sizes is not None

        def explain(failure: Failure) -> CdcError | None:
            return sizes.explain(failure) or refused_rows(failure) or self._topics.explain(failure)

        self._batches_too_large = False
        reports = {"delivery.report.only.error": False} if traced else {}
        return self._settings.open_producer(
            {**sizes.properties(self._wanted_batch), **reports}, explain=explain, watch=self._topics.check
        )

    @contextmanager
    def _dropped_when_refused(self) -> Iterator[None]:
        """Drop the client and all rows since the last flush when a broker refuses a row: the client has ended."""
        try:
            yield
        except RefusedRowsError:
            self._drop()
            raise

    def _drop(self) -> None:
        self._producers.close()
        self._limits = None
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._refused = []
        self._given = self._messages = self._bytes = 0

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the Kafka sink is closed")


def _without(
    batch: MessageBatch,
    headers: list[list[Header]] | None,
    deleted: pa.BooleanArray | None,
    places: Collection[int],
) -> tuple[MessageBatch, list[list[Header]] | None, pa.BooleanArray | None]:
    """Return *batch*, *headers* and *deleted* without the messages at *places*."""
    left = np.setdiff1d(np.arange(len(batch)), np.fromiter(places, np.int64))
    rest = MessageBatch(
        topic=batch.topic,
        key=batch.key.take(pa.array(left)),
        value=batch.value.take(pa.array(left)),
        updated=batch.updated.take(pa.array(left)),
    )
    kept = None if headers is None else [headers[place] for place in left.tolist()]
    return rest, kept, None if deleted is None else deleted.take(pa.array(left))
