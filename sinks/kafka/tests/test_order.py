"""After any failure a consumer sees a prefix of each partition, in order."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing.kafka_cluster import KafkaCluster
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows, table_name, version
from cdc_testing.runs import eventually

from cdc_core import RefusedRowsError, RetryableSinkError, RowBatch, Timestamp


def test_nothing_after_a_refused_message_is_written(kafka: KafkaRig) -> None:
    kafka.create_topic(1, max_message_bytes="2000")
    refused = 50
    for batch in ({}, {"Flush": {"MaxMessages": 1}}, {"Flush": {"MaxMessages": 7}}):
        sink = kafka.sink({"kafka_sink_config": batch})
        before = len(kafka.received())
        texts = ["y" * (5000 if number == refused else 50) for number in range(200)]
        with pytest.raises(RefusedRowsError, match="5038 bytes"):
            _emit_in_parts(sink, rows(range(200), texts=texts))
        landed = [version(message)[0] for message in kafka.received()[before:]]
        assert landed == list(range(len(landed))), "a message is missing in between"
        assert len(landed) <= refused


@pytest.mark.slow
def test_no_message_expires_while_the_broker_is_paused_for_less_than_the_flush_timeout(
    own_broker: KafkaBroker, own_kafka: KafkaRig
) -> None:
    sink = own_kafka.sink({"topic_partitions": "1", "librdkafka.socket.timeout.ms": "1000"})
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
    walls = [version(message)[1] for message in own_kafka.received()]
    assert walls == list(range(1, 51))


def test_a_flush_that_fails_leaves_a_prefix_and_every_later_call_gives_the_reason(
    own_broker: KafkaBroker, own_kafka: KafkaRig
) -> None:
    options = {"topic_partitions": "1", "flush_timeout": "2s", "kafka_sink_config": {"Flush": {"MaxMessages": 3}}}
    sink = own_kafka.sink(options)
    sink.emit(rows([0], walls=[1]))
    sink.flush()
    own_broker.pause()
    try:
        for number in range(1, 50):
            sink.emit(rows([0], walls=[number + 1]))
        for call in (sink.flush, sink.flush, lambda: sink.emit(rows([2]))):  # librdkafka may give some up in between
            with pytest.raises(RetryableSinkError, match=r"Kafka has acknowledged no message for 2 s; \d+ waiting"):
                call()
        sink.close()
    finally:
        own_broker.resume()
    again = own_kafka.sink(options)
    again.emit(rows([0] * 50, walls=range(1, 51)))
    again.flush()
    walls = [version(message)[1] for message in own_kafka.received()]
    assert _first_seen_in_order(walls), walls
    assert set(walls) == set(range(1, 51))


@pytest.mark.slow
def test_a_partition_that_takes_no_messages_is_named(kafka: KafkaRig) -> None:
    with KafkaCluster() as cluster:
        rig = kafka.at(cluster.bootstrap_servers)
        rig.create_topic(3, min_insync_replicas="1")
        options = {"flush_timeout": "3s", "topic_partitions": "1", "topic_configs": {"min.insync.replicas": "3"}}
        sink, marks = rig.sink(options), rig.resolved_sink(options, tables=(table_name("copied"),))
        sink.emit(rows(range(20)))
        sink.flush()
        marks.emit_resolved(Timestamp(1))
        broker = cluster.leader(rig.topic, 1)
        assert broker is not None
        broker.kill()
        eventually("the loss of the leader", lambda: cluster.leader(rig.topic, 1) is None)

        def reason(deliver: Callable[[], object]) -> str:
            with pytest.raises(RetryableSinkError) as raised:
                deliver()
            return str(raised.value)

        def emitted() -> None:
            sink = rig.sink(options)
            sink.emit(rows(range(20)))
            sink.flush()

        def marked() -> None:
            rig.resolved_sink(options, tables=(table_name("copied"),)).emit_resolved(Timestamp(2))

        # The brokers that are asked may be slow, or not know it yet.
        waiting = r"Kafka has acknowledged no message for 3 s; \d+ waiting: partition"
        lost = rf"{waiting} 1 .* has no leader; start broker {broker.node_id}"
        eventually("the partition without a leader", lambda: re.fullmatch(lost, reason(emitted)))
        needed = r"2 of 3 in-sync replicas that min\.insync\.replicas demands; start broker [123], [123], [123]"
        eventually("too few replicas", lambda: re.fullmatch(f"{waiting} 0 .* has {needed}", reason(marked)))


@pytest.mark.slow
def test_a_quota_that_demands_a_longer_wait_than_the_flush_timeout_fails_no_flush(
    own_broker: KafkaBroker, own_kafka: KafkaRig
) -> None:
    named = ("--entity-type", "clients", "--entity-name", "throttled")
    own_broker.change_configs(*named, "--add-config", "producer_byte_rate=20000")
    sink = own_kafka.sink({"flush_timeout": "5s", "kafka_sink_config": {"ClientID": "throttled"}})
    for _ in range(2):  # the second one waits for ten seconds
        sink.emit(rows([1], texts=["x" * 400_000]))
        assert sink.flush().messages == 1


def test_keys_and_headers_fill_the_buffer_too(own_broker: KafkaBroker, own_kafka: KafkaRig) -> None:
    options = {"buffer_size": "1MB", "extra_headers": {"h": "x" * 1000}, "flush_timeout": "2s"}
    sink = own_kafka.sink(options)
    sink.emit(rows([1]))
    sink.flush()
    batch = rows(range(500))
    own_broker.pause()
    try:
        sink.emit(batch)
        sink.emit(batch)
        with pytest.raises(RetryableSinkError, match="Kafka has acknowledged no message"):
            sink.emit(batch)
    finally:
        own_broker.resume()


def test_the_versions_of_a_row_keep_their_order_when_the_broker_is_killed_and_restarted(
    own_broker: KafkaBroker, own_kafka: KafkaRig
) -> None:
    sink = own_kafka.sink({"topic_partitions": "3", "flush_timeout": "10m"})  # a busy machine starts a broker slowly
    wall = 0
    again = threading.Thread(target=_kill_and_start, args=(own_broker,))
    for step in range(12):
        if step == 4:
            again.start()
        sink.emit(rows([number % 50 for number in range(2_000)], walls=range(wall + 1, wall + 2_001)))
        wall += 2_000
        sink.flush()
    again.join()
    assert own_broker.running
    seen: dict[int, list[int]] = {}
    for message in own_kafka.received():
        key, at = version(message)
        seen.setdefault(key, []).append(at)
    assert sum(map(len, seen.values())) == wall, "rows were lost or written twice"
    for key, walls in seen.items():
        assert walls == sorted(walls), f"an older version of row {key} follows a newer one"


def _emit_in_parts(sink: KafkaSink, rows: RowBatch) -> None:
    for start in range(0, len(rows), 20):
        sink.emit(rows.slice(start, 20))
    sink.flush()


def _kill_and_start(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("headers", [{}, {"header_updated": "at"}])
def test_a_full_queue_holds_the_writer_back_and_keeps_the_order(headers: dict[str, str], kafka: KafkaRig) -> None:
    sink = kafka.sink({**headers, "buffer_size": "64KB", "topic_partitions": "2"})
    sink.emit(rows([number % 10 for number in range(20_000)], walls=range(1, 20_001)))
    assert sink.flush().messages == 20_000
    last: dict[int, int] = {}
    messages = kafka.received()
    assert len(messages) == 20_000
    for message in messages:
        key, wall = version(message)
        assert message.headers == ((("at", f"{wall}.0000000000".encode()),) if headers else ())
        assert last.get(key, 0) < wall
        last[key] = wall


def _first_seen_in_order(walls: list[int]) -> bool:
    """Return whether each version first appears after all older versions."""
    first_seen = list(dict.fromkeys(walls))
    return first_seen == sorted(first_seen)
