"""Rows that the broker refuses: they are found, all others arrive in order, and the sink goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from cdc_sink_kafka.sink import KafkaSink

from cdc_core import Encoder, Flushed, MessageBatch, RefusedRowsError, RowBatch, SliceInfo, TableSchema, Timestamp
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery

LARGE = "y" * 5000


class PutAside:
    """Notes bad rows; no other has to wait for them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def put_aside(self, bad: BadRow) -> None:
        self.rows.append((bad.row.column("key")[0].as_py()["id"], bad.reason))

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        del rows
        return ()


class WithoutSomeKeys(Encoder):
    """Leaves the key out of messages of rows with a negative id."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.context)
        self._encoder = encoder

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = self._encoder.encode(rows, topic=topic)
        ids = rows.column("key").field("id").to_pylist()
        keys = [None if number < 0 else key for number, key in zip(ids, batch.key.to_pylist(), strict=True)]
        return dataclasses.replace(batch, key=pa.array(keys, pa.large_binary()))

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        pass

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return self._encoder.encode_resolved(topic, timestamp)


def deliver(sink: KafkaSink, slice_: SliceInfo, batches: Sequence[RowBatch]) -> tuple[PutAside, Flushed]:
    aside = PutAside()
    delivery = Delivery(sink, aside, owner="sink 'kafka'")
    delivery.begin(slice_)
    for batch in batches:
        delivery.emit(batch)
    return aside, delivery.flush()


def test_one_message_too_large_for_its_topic_is_put_aside_and_all_others_arrive_in_order(
    open_sink: Callable[..., KafkaSink],
    create_topic: Callable[..., None],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    create_topic(2, max_message_bytes="2000")
    sink = open_sink()
    ids = [number % 10 for number in range(1000)]
    texts = [LARGE if number == 777 else "x" for number in range(1000)]
    batch = rows(ids, walls=range(1, 1001), texts=texts)
    aside, flushed = deliver(sink, first_slice, [batch.slice(0, 400), batch.slice(400)])
    ((bad, reason),) = aside.rows
    assert bad == 7
    assert reason == (
        f"the message of the row with key {{'id': 7}} of table public.orders has 5037 bytes, more than topic '{topic}'"
        " takes (max.message.bytes = 2000): raise max.message.bytes of the topic, or compress messages by Compression"
        " in kafka_sink_config"
    )
    assert flushed.messages == 999
    first_seen: dict[int, list[int]] = {}
    for message in received():
        key, wall = version(message)
        if wall not in first_seen.setdefault(key, []):
            first_seen[key].append(wall)
    assert all(walls == sorted(walls) for walls in first_seen.values()), "a version came for the first time too late"
    assert sum(map(len, first_seen.values())) == 999


def test_a_record_that_the_topic_refuses_for_what_it_holds_is_put_aside(
    open_sink: Callable[..., KafkaSink],
    context: Callable[..., Any],
    create_topic: Callable[..., None],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    first_slice: SliceInfo,
) -> None:
    create_topic(1, cleanup_policy="compact")
    sink = open_sink(encoder=WithoutSomeKeys(context("").encoder))
    aside, flushed = deliver(sink, first_slice, [rows([*range(50), -1, *range(50, 100)])])
    assert [bad for bad, _ in aside.rows] == [-1]
    assert "refuses a message for what it holds" in aside.rows[0][1]
    assert "a topic with cleanup.policy=compact takes no message without a key" in aside.rows[0][1]
    assert flushed.messages == 100
    assert list(dict.fromkeys(version(message)[0] for message in received())) == list(range(100))


def test_after_a_refusal_the_same_sink_takes_the_rows_again(
    open_sink: Callable[..., KafkaSink],
    create_topic: Callable[..., None],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    first_slice: SliceInfo,
) -> None:
    create_topic(1, max_message_bytes="2000")
    sink = open_sink()
    sink.begin(first_slice)
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    sink.emit(rows([2, 3, 4], texts=["x", LARGE, "x"]))
    with pytest.raises(RefusedRowsError):
        sink.flush()
    assert sink.flush() == Flushed(), "nothing since the last flush counts"
    sink.emit(rows([2]))
    sink.emit(rows([4]))
    assert sink.flush().messages == 2
    assert list(dict.fromkeys(version(message)[0] for message in received())) == [1, 2, 4]
