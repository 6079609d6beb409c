"""What may fail on the way to the broker, and what a consumer sees of it: a prefix of each partition, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.sink import KafkaSink

from cdc_core import RefusedRowsError, RetryableSinkError, RowBatch, SliceInfo


def test_nothing_behind_a_refused_message_is_written(
    open_sink: Callable[..., KafkaSink],
    create_topic: Callable[..., None],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    first_slice: SliceInfo,
) -> None:
    create_topic(1, max_message_bytes="2000")
    refused = 50
    for batch in ({}, {"Flush": {"MaxMessages": 1}}, {"Flush": {"MaxMessages": 7}}):
        sink = open_sink({"kafka_sink_config": batch})
        before = len(received())
        texts = ["y" * (5000 if number == refused else 50) for number in range(200)]
        sink.begin(first_slice)
        with pytest.raises(RefusedRowsError, match="5038 bytes"):
            _emit_in_parts(sink, rows(range(200), texts=texts))
        landed = [version(message)[0] for message in received()[before:]]
        assert landed == list(range(len(landed))), "a message is missing in between"
        assert len(landed) <= refused


def test_while_the_broker_is_paused_nothing_is_given_up_before_the_flush_timeout(
    own_broker: KafkaBroker,
    sink_of: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    read_from: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    sink = sink_of(own_broker.bootstrap_servers, {"topic_partitions": "1", "librdkafka.socket.timeout.ms": "1000"})
    sink.prepare()
    sink.begin(first_slice)
    sink.emit(rows([0], walls=[1]))
    sink.flush()
    own_broker.pause()
    resume = threading.Timer(2.5, own_broker.resume)
    resume.start()
    try:
        for number in range(1, 50):
            sink.emit(rows([0], walls=[number + 1]))
        sink.flush()
    finally:
        resume.join()
    walls = [version(message)[1] for message in read_from(own_broker.bootstrap_servers, topic)]
    assert walls == list(range(1, 51))


def test_a_flush_that_gives_up_leaves_a_prefix_and_says_why_whenever_it_is_asked(
    own_broker: KafkaBroker,
    sink_of: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    read_from: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    options = {"topic_partitions": "1", "flush_timeout": "2s", "kafka_sink_config": {"Flush": {"MaxMessages": 3}}}
    sink = sink_of(own_broker.bootstrap_servers, options)
    sink.prepare()
    sink.begin(first_slice)
    sink.emit(rows([0], walls=[1]))
    sink.flush()
    own_broker.pause()
    for number in range(1, 50):
        sink.emit(rows([0], walls=[number + 1]))
    for call in (sink.flush, sink.flush, lambda: sink.emit(rows([2]))):
        with pytest.raises(RetryableSinkError, match=r"no message was acknowledged by Kafka for 2 s, 49 are waiting"):
            call()
    sink.close()
    own_broker.resume()
    again = sink_of(own_broker.bootstrap_servers, options)
    again.begin(first_slice)
    again.emit(rows([0] * 50, walls=range(1, 51)))
    again.flush()
    walls = [version(message)[1] for message in read_from(own_broker.bootstrap_servers, topic)]
    assert _unseen_in_order(walls), walls
    assert set(walls) == set(range(1, 51))


def test_the_versions_of_a_row_keep_their_order_through_kill_and_restart_of_the_broker(
    own_broker: KafkaBroker,
    sink_of: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    read_from: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    sink = sink_of(own_broker.bootstrap_servers, {"topic_partitions": "3"})
    sink.prepare()
    wall = 0
    for attempt in range(2):
        again = threading.Thread(target=_kill_and_start, args=(own_broker,))
        for step in range(20):
            if step == 5:
                again.start()
            sink.begin(first_slice)
            sink.emit(rows([number % 50 for number in range(2_000)], walls=range(wall + 1, wall + 2_001)))
            wall += 2_000
            sink.flush()
        again.join()
        assert own_broker.running, f"no broker after attempt {attempt}"
    seen: dict[int, list[int]] = {}
    for message in read_from(own_broker.bootstrap_servers, topic):
        key, at = version(message)
        seen.setdefault(key, []).append(at)
    assert sum(map(len, seen.values())) == wall, "rows were lost or written twice"
    for key, walls in seen.items():
        assert walls == sorted(walls), f"row {key} went back in time"


def _emit_in_parts(sink: KafkaSink, rows: RowBatch) -> None:
    for start in range(0, len(rows), 20):
        sink.emit(rows.slice(start, 20))
    sink.flush()


def _kill_and_start(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


def test_a_full_queue_holds_the_writer_back_and_keeps_the_order(
    open_sink: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    received: Callable[..., list[Any]],
    version: Callable[[Any], tuple[int, int]],
    first_slice: SliceInfo,
) -> None:
    sink = open_sink({"buffer_size": "64KB", "topic_partitions": "2"})
    sink.begin(first_slice)
    sink.emit(rows([number % 10 for number in range(20_000)], walls=range(1, 20_001)))
    assert sink.flush().messages == 20_000
    last: dict[int, int] = {}
    messages = received()
    assert len(messages) == 20_000
    for message in messages:
        key, wall = version(message)
        assert last.get(key, 0) < wall
        last[key] = wall


def _unseen_in_order(walls: list[int]) -> bool:
    """Return whether each version appears for the first time after all older ones did."""
    first_seen = list(dict.fromkeys(walls))
    return first_seen == sorted(first_seen)
