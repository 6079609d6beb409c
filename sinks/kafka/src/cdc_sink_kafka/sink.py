"""The Kafka sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdc_core.errors import TerminalSinkError
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.sink import Flushed, Sink, SinkContext, SliceInfo
from cdc_core.timestamp import Timestamp
from cdc_sink_kafka.admin import Administrator
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.outbox import Outbox
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_kafka.topics import Topics

__all__ = ["KafkaSink"]

_CHUNK = 10_000
_METADATA_LIMIT_S = 10.0


class KafkaSink(Sink):
    """Writes each row as a message to the topic of its table."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, KafkaOptions):
            raise TypeError(f"options must be KafkaOptions, not {type(context.options).__name__}")
        self._options: KafkaOptions = context.options
        self._topics = Topics(context.topics(self._options.topic_prefix), name=self._options.topic_name)
        self._outbox: Outbox | None = None
        self._messages = 0
        self._bytes = 0
        self._closed = False

    def topic(self, table: TableName) -> str:
        return self._topics.of(table)

    def check(self) -> None:
        self._topics.check(self.context.tables)
        self._administrator().check(self._topics.all(self.context.tables))

    def prepare(self) -> None:
        self._administrator().prepare(self._topics.all(self.context.tables))

    def begin(self, slice_: SliceInfo) -> None:  # noqa: ARG002 (messages do not name their slice)
        self._require_open()
        if self._messages:
            self._drop_outbox()

    def emit(self, rows: RowBatch) -> None:
        self._require_open()
        if len(rows) == 0:
            return
        topic = self.topic(rows.schema.name)
        batch = self.context.encoder.encode(rows, topic=topic)
        outbox = self._open_outbox()
        for start in range(0, len(batch), _CHUNK):
            outbox.send(topic, _messages(batch.key.slice(start, _CHUNK), batch.value.slice(start, _CHUNK)))
        self._messages += len(batch)
        self._bytes += batch.nbytes

    def flush(self) -> Flushed:
        self._require_open()
        if self._outbox is not None:
            self._outbox.flush()
        flushed = Flushed(messages=self._messages, bytes=self._bytes)
        self._messages = self._bytes = 0
        return flushed

    def emit_resolved(self, timestamp: Timestamp) -> None:
        self._require_open()
        outbox = self._open_outbox()
        for topic in self._topics.all(self.context.tables):
            payload = self.context.encoder.encode_resolved(topic, timestamp)
            partitions = outbox.producer.list_topics(topic, timeout=_METADATA_LIMIT_S).topics[topic].partitions
            for partition in sorted(partitions):
                outbox.send_one(topic, value=payload, partition=partition)
        outbox.flush()

    def close(self) -> None:
        self._drop_outbox()
        self._closed = True

    def _open_outbox(self) -> Outbox:
        if self._outbox is None:
            properties = {**self._client(), **producer_properties(self._options)}
            self._outbox = Outbox(properties, stall_s=self._options.flush_timeout)
        return self._outbox

    def _drop_outbox(self) -> None:
        if self._outbox is not None:
            self._outbox.close()
        self._outbox = None
        self._messages = self._bytes = 0

    def _client(self) -> dict[str, Any]:
        return client_properties(self.context.uri, self._options, changefeed=self.context.changefeed)

    def _administrator(self) -> Administrator:
        return Administrator(self._client(), self._options)

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the Kafka sink is closed")


def _messages(keys: pa.Array, values: pa.Array) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
