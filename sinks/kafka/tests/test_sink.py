from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from cdc_sink_kafka.partitions import Partitions
from cdc_sink_kafka.sink import KafkaSink
from confluent_kafka.admin import AdminClient

from cdc_core import RetryableSinkError, RowBatch, SinkContext, SliceInfo, TableName, Timestamp


def test_each_row_is_a_message_and_flush_counts_them(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink()
    sink.begin(first_slice)
    sink.emit(rows(range(25_000)))
    flushed = sink.flush()
    messages = received()
    assert flushed.messages == len(messages) == 25_000
    assert flushed.bytes == sum(len(message.key) + len(message.value) for message in messages)
    assert sorted(json.loads(message.value)["id"] for message in messages) == list(range(25_000))
    assert all(json.loads(message.key) == [json.loads(message.value)["id"]] for message in messages)
    assert sink.flush().messages == 0


def test_the_versions_of_a_row_stand_in_order_in_one_partition(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"topic_partitions": "3"})
    sink.begin(first_slice)
    for start in range(0, 30_000, 5_000):
        sink.emit(rows([number % 100 for number in range(5_000)], walls=range(start + 1, start + 5_001)))
    sink.flush()
    seen: dict[int, list[tuple[int, int]]] = {}
    for message in received():
        key, wall = version(message)
        seen.setdefault(key, []).append((message.partition, wall))
    assert len(seen) == 100
    assert len({partition for versions in seen.values() for partition, _ in versions}) == 3
    for versions in seen.values():
        assert len({partition for partition, _ in versions}) == 1
        assert [wall for _, wall in versions] == sorted(wall for _, wall in versions)


def test_a_deleted_row_can_be_a_tombstone(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"topic_partitions": "1"})
    sink.begin(first_slice)
    sink.emit(rows([1, 2, 3], deleted=[2]))
    sink.flush()
    assert [(message.key, message.value is None) for message in received()] == [
        (b"[1]", False),
        (b"[2]", True),
        (b"[3]", False),
    ]


def test_many_topics_are_asked_for_in_one_go(
    open_sink: Callable[..., KafkaSink],
    received: Callable[..., list[Any]],
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []
    ask = Partitions._ask

    def counted(partitions: Partitions, topic: str | None) -> dict[str, list[int]]:
        asked.append(topic)
        return ask(partitions, topic)

    tables = tuple(TableName("shop", "public", f"t{number}") for number in range(20))
    sink = open_sink({"topic_partitions": "2"}, tables=tables)
    monkeypatch.setattr(Partitions, "_ask", counted)
    sink.emit_resolved(Timestamp(1))
    assert asked == [None]
    assert all(len(received(f"{topic_prefix}t{number}")) == 2 for number in range(20))


def test_a_partition_added_while_running_gets_the_next_resolved_mark(
    open_sink: Callable[..., KafkaSink],
    received: Callable[..., list[Any]],
    add_partitions: Callable[[int], None],
) -> None:
    sink = open_sink({"topic_partitions": "2"})
    sink.emit_resolved(Timestamp(1))
    for total in range(3, 8):
        add_partitions(total)
        sink.emit_resolved(Timestamp(total))
    marks: dict[int, list[bytes]] = {}
    for message in received():
        marks.setdefault(message.partition, []).append(message.value)
    newest = str(Timestamp(7)).encode()
    assert sorted(marks) == list(range(7))
    assert all(newest in partition[-1] for partition in marks.values())
    assert [len(marks[partition]) for partition in range(7)] == [6, 6, 5, 4, 3, 2, 1]


def test_a_partition_added_to_one_of_many_topics_gets_marks_within_seconds(
    open_sink: Callable[..., KafkaSink],
    received: Callable[..., list[Any]],
    add_partitions: Callable[[int], None],
) -> None:
    tables = tuple(TableName("shop", "public", name) for name in ("orders", *(f"t{number}" for number in range(20))))
    sink = open_sink({"topic_partitions": "1"}, tables=tables)
    sink.emit_resolved(Timestamp(1))
    add_partitions(2)
    deadline = time.monotonic() + 15
    while not any(message.partition == 1 for message in received()):
        assert time.monotonic() < deadline
        sink.emit_resolved(Timestamp(2))


def test_a_flush_does_not_wait_for_batches_to_be_filled(
    open_sink: Callable[..., KafkaSink], rows: Callable[..., RowBatch], first_slice: SliceInfo
) -> None:
    sink = open_sink(
        {"kafka_sink_config": {"Flush": {"Messages": 100_000, "Frequency": "600s"}}, "flush_timeout": "30s"}
    )
    sink.begin(first_slice)
    sink.emit(rows(range(10)))
    assert sink.flush().messages == 10


def test_the_broker_makes_topics_where_that_is_left_to_it(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"create_kafka_topics": "auto"})
    sink.check()
    sink.begin(first_slice)
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    assert [message.key for message in received()] == [b"[1]"]


def test_all_tables_go_to_one_topic_when_it_has_a_name(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    tables = tuple(TableName("shop", "public", name) for name in ("a", "b"))
    sink = open_sink({"topic_name": topic, "topic_partitions": "1"}, tables=tables)
    sink.check()
    sink.begin(first_slice)
    for table in tables:
        sink.emit(rows([1], table=table.table))
    sink.flush()
    sink.emit_resolved(Timestamp(5))
    assert [message.key for message in received()] == [b"[1]", b"[1]", None]


def test_a_topic_that_is_deleted_while_running_does_not_come_back_unnoticed(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    admin: AdminClient,
    topic: str,
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"librdkafka.topic.metadata.propagation.max.ms": 300})
    admin.delete_topics([topic])[topic].result()
    sink.begin(first_slice)
    sink.emit(rows([1]))
    with pytest.raises(RetryableSinkError, match=f"to topic '{topic}'"):
        sink.flush()
    assert topic not in admin.list_topics(timeout=20).topics


def test_a_slice_without_rows_needs_no_broker(context: Callable[..., SinkContext], first_slice: SliceInfo) -> None:
    sink = KafkaSink(context("nohost.invalid:9092"))
    sink.begin(first_slice)
    assert sink.flush().messages == 0


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_consumer_reads_every_compression(
    compression: str,
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"kafka_sink_config": {"Compression": compression.upper()}})
    sink.begin(first_slice)
    sink.emit(rows(range(500)))
    sink.flush()
    assert len(received()) == 500


@pytest.mark.parametrize("acks", ["ONE", "NONE"])
def test_weaker_acknowledgement_is_possible(
    acks: str,
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"kafka_sink_config": {"RequiredAcks": acks}, "topic_partitions": "1"})
    sink.begin(first_slice)
    sink.emit(rows(range(500)))
    sink.flush()
    sink.emit_resolved(Timestamp(9))
    deadline = time.monotonic() + 30
    while len(messages := received()) < 501 and acks == "NONE":  # nobody knows when they arrive
        assert time.monotonic() < deadline
    assert [message.key for message in messages] == [*(f"[{key}]".encode() for key in range(500)), None]


def test_the_client_writes_to_logging_and_not_to_stderr(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    first_slice: SliceInfo,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        sink = open_sink({"librdkafka": {"debug": "broker"}, "kafka_sink_config": {"ClientID": "noisy"}})
        sink.begin(first_slice)
        sink.emit(rows([1]))
        sink.flush()
    assert capfd.readouterr().err == ""
