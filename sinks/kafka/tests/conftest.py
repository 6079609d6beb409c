"""An encoder of few bytes, rows, sinks to give them to, and what a consumer sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing.kafka_fixtures import QUICK_RETURN, Kafka
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from cdc_core import (
    Column,
    ColumnType,
    Encoder,
    EncoderContext,
    EnvelopeOptions,
    Kind,
    MessageBatch,
    Op,
    RowBatch,
    SinkContext,
    SliceInfo,
    TableName,
    TableSchema,
    Timestamp,
)
from cdc_core.options import parse_options

TEXT = ColumnType(kind=Kind.STRING, source="text")
JSON = ColumnType(kind=Kind.JSON, source="jsonb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class SmallEncoder(Encoder):
    """Keys `[id]`, values of the row's columns and wall time as JSON; a delete is a tombstone."""

    file_extension = ".json"

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = rows.column("key").field("id").to_pylist()
        walls = rows.column("updated").field("wall").to_pylist()
        values = [
            None if after is None else json.dumps({**after, "wall": wall}).encode()
            for after, wall in zip(rows.column("after").to_pylist(), walls, strict=True)
        ]
        return MessageBatch(
            topic=topic,
            key=pa.array([f"[{key}]".encode() for key in keys], pa.large_binary()),
            value=pa.array(values, pa.large_binary()),
            updated=rows.column("updated"),
        )

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        pass

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return f'{{"resolved":"{timestamp}"}}'.encode()


def table_name(table: str = "orders", schema: str = "public") -> TableName:
    return TableName("shop", schema, table)


def make_rows(
    ids: Sequence[int],
    *,
    table: str = "orders",
    walls: Sequence[int] | None = None,
    texts: Sequence[str | None] | None = None,
    deleted: Sequence[int] = (),
    extra: Mapping[str, tuple[ColumnType, Sequence[Any]]] | None = None,
    before: bool = False,
) -> RowBatch:
    """Return updates of the rows *ids*, at *walls*, with a text each and *extra* columns; *deleted* have no `after`."""
    columns = {"id": (ColumnType(kind=Kind.INT, source="bigint", bits=64), list(ids))}
    columns["text"] = (TEXT, list(texts or ["x"] * len(ids)))
    columns |= extra or {}
    shape = TableSchema(
        name=table_name(table),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, (type_, _) in columns.items()),
        primary_key=("id",),
    )
    arrays = [pa.array(values, type_.arrow) for type_, values in columns.values()]
    gone = pa.array([key in deleted for key in ids], pa.bool_())
    whole = RowBatch.struct(shape.after_type, arrays)
    return RowBatch.of(
        shape,
        op=pa.array([Op.DELETE if key in deleted else Op.UPDATE for key in ids], pa.uint8()),
        updated=RowBatch.timestamps(
            pa.array(walls or range(1, len(ids) + 1), pa.int64()), pa.array([0] * len(ids), pa.int32())
        ),
        key=RowBatch.struct(shape.key_type, arrays[:1]),
        after=RowBatch.struct(shape.after_type, arrays, mask=gone),
        before=whole if before else None,
    )


@pytest.fixture
def rows() -> Callable[..., RowBatch]:
    return make_rows


@pytest.fixture
def first_slice() -> SliceInfo:
    return SliceInfo(step=0, index=0, lower=Timestamp(1))


@pytest.fixture
def context(topic_prefix: str) -> Callable[..., SinkContext]:
    """Make the context of a sink of a broker's address from options and, by keyword, what else it should differ in."""

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> SinkContext:
        values = {"topic_prefix": topic_prefix, **(options or {})}
        fields: dict[str, Any] = {
            "changefeed": "feed",
            "epoch": 7,
            "uri": f"kafka://{address}",
            "options": parse_options(KafkaOptions, values, owner="sink 'kafka'"),
            "encoder": SmallEncoder(EncoderContext(changefeed="feed", envelope=EnvelopeOptions(), options=None)),
            "tables": (table_name(),),
        }
        return SinkContext(**(fields | changes))

    return make


@pytest.fixture
def sink_of(context: Callable[..., SinkContext]) -> Iterator[Callable[..., KafkaSink]]:
    """Make a sink of a broker's address; closed at the end of the test."""
    opened: list[KafkaSink] = []

    def make(address: str, options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaSink:
        opened.append(KafkaSink(context(address, options, **changes)))
        return opened[-1]

    yield make
    for sink in opened:
        sink.close()


@pytest.fixture
def open_sink(kafka_broker: Kafka, sink_of: Callable[..., KafkaSink]) -> Callable[..., KafkaSink]:
    """Make a sink of the session's broker that was prepared."""

    def make(options: Mapping[str, Any] | None = None, /, **changes: Any) -> KafkaSink:
        sink = sink_of(kafka_broker.bootstrap_servers, options, **changes)
        sink.prepare()
        return sink

    return make


@pytest.fixture
def topic(topic_prefix: str) -> str:
    """The topic of the table that `rows` makes."""
    return f"{topic_prefix}orders"


@pytest.fixture
def admin(kafka_broker: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def create_topic(admin: AdminClient, topic: str) -> Callable[..., None]:
    """Create the topic with the broker's own client."""

    def create(partitions: int = 1, **configs: str) -> None:
        config = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[topic].result()

    return create


@pytest.fixture
def add_partitions(admin: AdminClient, topic: str) -> Callable[[int], None]:
    """Let the topic have so many partitions, and return when the broker tells clients of them."""

    def add(total: int) -> None:
        admin.create_partitions([NewPartitions(topic, total)])[topic].result()
        while len(admin.list_topics(topic, timeout=20).topics[topic].partitions) < total:
            admin.poll(0.01)

    return add


def read_topic(address: str, topic: str) -> list[Received]:
    """Return all messages that *topic* holds now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        places = [
            TopicPartition(topic, number) for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ]
        bounds = [consumer.get_watermark_offsets(place, timeout=20) for place in places]
        consumer.assign(
            [TopicPartition(topic, place.partition, start) for place, (start, _) in zip(places, bounds, strict=True)]
        )
        wanted = sum(end - start for start, end in bounds)
        found: list[Received] = []
        while len(found) < wanted:
            messages = consumer.consume(wanted - len(found), 20)
            assert messages, f"{topic} gives {len(found)} of {wanted} messages"
            found += [_received(message) for message in messages]
        return sorted(found, key=lambda message: (message.partition, message.offset))
    finally:
        consumer.close()


def _received(message: Message) -> Received:
    assert message.error() is None, message.error()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Received(
        partition=partition,
        offset=offset,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


@pytest.fixture
def received(kafka_broker: Kafka, topic: str) -> Callable[..., list[Received]]:
    """Return what a consumer reads from the topic, from start to end."""

    def read(name: str | None = None) -> list[Received]:
        return read_topic(kafka_broker.bootstrap_servers, name or topic)

    return read


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that tests of a module may kill and pause, if they leave it running."""
    with KafkaBroker(settings=QUICK_RETURN) as broker:
        yield broker


@pytest.fixture
def read_from() -> Callable[[str, str], list[Received]]:
    return read_topic


@pytest.fixture
def version() -> Callable[[Received], tuple[int, int]]:
    """Return the id and the wall time of the row that a message holds."""

    def of(message: Received) -> tuple[int, int]:
        value = json.loads(message.value or b"")
        return value["id"], value["wall"]

    return of
