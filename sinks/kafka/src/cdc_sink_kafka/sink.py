"""The Kafka sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import CdcError, PartialWriteError, RefusedRowsError, TerminalSinkError
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.sink import Flushed, Sink, SinkContext, SliceInfo
from cdc_core.timestamp import Timestamp
from cdc_sink_kafka.admin import Administrator
from cdc_sink_kafka.client_log import ClientLog
from cdc_sink_kafka.failures import Failure, refused_rows
from cdc_sink_kafka.headers import Header, Headers, sizes_of
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.outbox import Outbox
from cdc_sink_kafka.partitions import Partitions
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_kafka.sizes import Sizes
from cdc_sink_kafka.topics import Topics

__all__ = ["KafkaSink"]

_CHUNK = 2_000
"""Messages that become Python objects at a time: few enough to stay in the processor's cache."""


class KafkaSink(Sink):
    """Writes each row as a message to the topic of its table, in order within each partition.

    Order holds through failures: of a partition's messages nothing behind one that failed is written, so when the step
    is repeated no version of a row appears for the first time after a newer one. That needs `RequiredAcks` ALL, the
    default. A writer holds at most `buffer_size` bytes of values, as much again of keys and headers, and one chunk of
    rows as Python objects.

    A message that is too large for the client is refused by its index. When it is the broker that refuses one, the
    client ends, and what it still knew of others with it: then no row since the last flush counts, and a new client
    takes them again from the first.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, KafkaOptions):
            raise TypeError(f"options must be KafkaOptions, not {type(context.options).__name__}")
        self._options: KafkaOptions = context.options
        self._topics = Topics(context.topics(self._options.topic_prefix), name=self._options.topic_name)
        self._outbox: Outbox | None = None
        self._marks: Outbox | None = None
        self._partitions: Partitions | None = None
        self._sizes: Sizes | None = None
        self._headers: Headers | None = None
        self._given = 0
        self._messages = 0
        self._bytes = 0
        self._begun = False
        self._closed = False

    def topic(self, table: TableName) -> str:
        """Return the topic of *table*: prefix and name, or `topic_name`, escaped as CockroachDB does."""
        return self._topics.of(table)

    def check(self) -> None:
        """Return when the brokers answer and the topics are there or can be made. Raises: ConfigError, in seconds."""
        self._topics.check(self.context.tables)
        Headers(self._options)
        with self._administrator() as administrator:
            administrator.check(producer_properties(self._options), self._all_topics)

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return *schema* without the column whose entries become headers."""
        return Headers(self._options).shape(schema)

    def prepare(self) -> None:
        """Make the topics that are missing, if `create_kafka_topics` is explicit."""
        with self._administrator() as administrator:
            administrator.prepare(self._all_topics)

    def begin(self, slice_: SliceInfo) -> None:  # noqa: ARG002 (messages do not name their slice)
        """Give up what was not flushed."""
        self._require_open()
        self._begun = True
        if self._given:
            self._drop()

    def emit(self, rows: RowBatch) -> None:
        """Queue *rows*. Waits while the queue is full."""
        self._require_open()
        if not self._begun:
            raise TerminalSinkError("the Kafka sink was given rows before begin")
        if len(rows) == 0:
            return
        if self._outbox is None or self._sizes is None or self._headers is None:
            self._outbox, self._sizes, self._headers = self._open()
        payload = self._headers.payload(rows)
        batch = self.context.encoder.encode(payload, topic=self.topic(rows.schema.name))
        headers = self._headers.of(rows, batch)
        sizes = None if headers is None else sizes_of(headers)
        first, self._given = self._given, self._given + len(rows)
        watched = self._sizes.watch(rows, batch, sizes, first=first)
        if watched.unsendable:
            batch, headers = _without(batch, headers, watched.unsendable)
            sizes = None if headers is None else sizes_of(headers)
        self._bytes += watched.nbytes
        self._messages += len(batch)
        with self._giving_up_what_is_refused():
            self._outbox.make_room(batch.key.nbytes + (0 if sizes is None else int(sizes.sum())))
            if headers is None:
                for start in range(0, len(batch), _CHUNK):
                    keys, values = batch.key.slice(start, _CHUNK), batch.value.slice(start, _CHUNK)
                    self._outbox.send(batch.topic, _messages(keys, values))
            else:
                self._send_with_headers(self._outbox, batch, headers)
        if watched.unsendable:
            raise PartialWriteError(
                f"{len(watched.unsendable)} messages to topic '{batch.topic}' are too large to be sent",
                failures=[(first + place, reason) for place, reason in watched.unsendable.items()],
            )

    def flush(self) -> Flushed:
        """Return when every message is acknowledged. Counts the bytes of keys and values, before compression."""
        self._require_open()
        if self._outbox is not None and self._sizes is not None:
            with self._giving_up_what_is_refused():
                self._outbox.flush()
            self._sizes.forget()
        flushed = Flushed(messages=self._messages, bytes=self._bytes)
        self._given = self._messages = self._bytes = 0
        return flushed

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when every partition that a topic of the changefeed has now holds the mark, under no key."""
        self._require_open()
        if self._marks is None or self._partitions is None:
            self._marks = self._new_outbox({})
            self._partitions = Partitions(self._marks.producer)
        headers = list(Headers(self._options).constant)
        for topic, partitions in self._partitions.of(self._all_topics).items():
            payload = self.context.encoder.encode_resolved(topic, timestamp)
            for partition in partitions:
                self._marks.send_one(topic, value=payload, partition=partition, headers=headers)
        self._marks.flush()

    def close(self) -> None:
        """Give up what was not flushed. Waits for no broker. May be called twice."""
        self._drop()
        self._closed = True

    @property
    def _all_topics(self) -> list[str]:
        return self._topics.all(self.context.tables)

    def _open(self) -> tuple[Outbox, Sizes, Headers]:
        properties = producer_properties(self._options)
        with self._administrator() as administrator:
            limits = administrator.limits(self._all_topics)
        own = {
            "Flush.MaxBytes in kafka_sink_config": properties["message.max.bytes"],
            "buffer_size": properties["queue.buffering.max.kbytes"] * 1024,
        }
        sizes = Sizes(self._client()["bootstrap.servers"], limits, options=own)

        def explain(failure: Failure) -> CdcError | None:
            return sizes.explain(failure) or refused_rows(failure)

        outbox = self._new_outbox(sizes.properties(properties.get("batch.size")), explain=explain)
        return outbox, sizes, Headers(self._options)

    @contextmanager
    def _giving_up_what_is_refused(self) -> Iterator[None]:
        """Let go of a client that ended over rows, and forget all that it was given since the last flush."""
        try:
            yield
        except RefusedRowsError:
            self._drop()
            raise

    def _new_outbox(
        self, changes: dict[str, Any], *, explain: Callable[[Failure], CdcError | None] | None = None
    ) -> Outbox:
        return Outbox(
            {**self._client(), **producer_properties(self._options), **changes},
            stall_s=self._options.flush_timeout,
            log=ClientLog(),
            explain=explain,
        )

    def _send_with_headers(self, outbox: Outbox, batch: MessageBatch, headers: Sequence[list[Header]]) -> None:
        for start in range(0, len(batch), _CHUNK):
            keys = batch.key.slice(start, _CHUNK).to_pylist()
            values = batch.value.slice(start, _CHUNK).to_pylist()
            outbox.send_each(batch.topic, keys, values, headers[start : start + _CHUNK])

    def _client(self) -> dict[str, Any]:
        return client_properties(self.context.uri, self._options, changefeed=self.context.changefeed)

    def _administrator(self) -> Administrator:
        return Administrator(self._client(), self._options)

    def _drop(self) -> None:
        self._partitions = None  # before its outbox: that lets go of a client only when nobody else has it
        for outbox in (self._outbox, self._marks):
            if outbox is not None:
                outbox.close()
        self._outbox = self._marks = self._sizes = None
        self._given = self._messages = self._bytes = 0

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the Kafka sink is closed")


def _messages(keys: pa.Array, values: pa.Array) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]


def _without(
    batch: MessageBatch, headers: list[list[Header]] | None, places: Collection[int]
) -> tuple[MessageBatch, list[list[Header]] | None]:
    """Return *batch* and *headers* without the messages at *places*."""
    left = np.setdiff1d(np.arange(len(batch)), np.fromiter(places, np.int64))
    rest = MessageBatch(
        topic=batch.topic,
        key=batch.key.take(pa.array(left)),
        value=batch.value.take(pa.array(left)),
        updated=batch.updated.take(pa.array(left)),
    )
    return rest, None if headers is None else [headers[place] for place in left.tolist()]
