from __future__ import annotations

import json
import logging
import time

import pytest
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows, table_name, version

from cdc_core import Flushed, RowBatch, TracedRow
from cdc_core.telemetry.stages import Stages


def test_each_row_is_a_message_and_flush_counts_them(kafka: KafkaRig) -> None:
    sink = kafka.sink()
    sink.emit(rows(range(25_000)))
    flushed = sink.flush()
    messages = kafka.received()
    assert flushed.messages == len(messages) == 25_000
    assert flushed.bytes == sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    assert sorted(version(message)[0] for message in messages) == list(range(25_000))
    assert all(json.loads(message.key or b"") == [version(message)[0]] for message in messages)
    assert sink.flush() == Flushed()


class EveryFirstRow:
    """The first row of each batch is traced."""

    def __init__(self) -> None:
        self.followed: list[TracedRow] = []

    def rows_in(self, _: RowBatch) -> list[tuple[int, TracedRow]]:
        self.followed.append(TracedRow())
        return [(0, self.followed[-1])]

    def reached(self, stage: str, rows: RowBatch) -> None:
        pass


def test_slices_with_traced_rows_share_a_client_that_is_closed_when_there_are_no_more(
    kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new client takes half a second until its first message is acknowledged."""
    sink = kafka.sink({"topic_partitions": "1"})
    trace, clients = EveryFirstRow(), []
    for number in range(6):
        stages = Stages("sink")
        with sink.context.calls.observed_by(stages):
            sink.emit(rows([number], walls=[1]))  # of which nobody wants to know, also in the slice of the next ones
            stages.trace = trace if number % 2 else None
            sink.emit(rows([number, 99], walls=[2, number + 1]))
            clients.append(sink._producers.of_rows(traced=False))
            sink.flush()
    assert len(set(clients)) == 2
    assert {"topic", "partition", "offset"} == trace.followed[-1].place.keys()
    assert [version(message) for message in kafka.received() if message.key == b"[99]"] == [
        (99, number + 1) for number in range(6)
    ]
    monkeypatch.setattr("cdc_sink_kafka.producers._KEPT_S", -1.0)
    sink.flush()
    assert list(sink._producers._open) == [False]


def test_a_flush_does_not_wait_for_batches_to_fill(kafka: KafkaRig) -> None:
    sink = kafka.sink(
        {"kafka_sink_config": {"Flush": {"Messages": 100_000, "Frequency": "600s"}}, "flush_timeout": "300s"}
    )
    sink.emit(rows(range(10)))
    assert sink.flush().messages == 10


def test_the_broker_creates_topics_if_the_options_leave_it_to_the_broker(kafka: KafkaRig) -> None:
    options = {"create_kafka_topics": "auto"}
    kafka.destination(options).check()
    sink = kafka.sink(options)
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    assert [message.key for message in kafka.received()] == [b"[1]"]


def test_all_tables_go_to_one_topic_when_it_has_a_name(kafka: KafkaRig) -> None:
    tables = (table_name("a"), table_name("b"))
    options = {"topic_name": "orders", "topic_partitions": "1"}
    kafka.destination(options, tables=tables).check()
    sink = kafka.sink(options, tables=tables)
    for table in tables:
        sink.emit(rows([1], table=table.table))
    sink.flush()
    assert [message.key for message in kafka.received()] == [b"[1]", b"[1]"]


def test_a_slice_without_rows_needs_no_broker(kafka: KafkaRig) -> None:
    assert KafkaSink(kafka.at("nohost.invalid:9092").context()).flush() == Flushed()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_consumer_reads_every_compression(compression: str, kafka: KafkaRig) -> None:
    sink = kafka.sink({"kafka_sink_config": {"Compression": compression.upper()}})
    sink.emit(rows(range(500)))
    sink.flush()
    assert len(kafka.received()) == 500


@pytest.mark.parametrize("acks", ["ONE", "NONE"])
def test_weaker_acknowledgement_is_possible(acks: str, kafka: KafkaRig) -> None:
    sink = kafka.sink({"kafka_sink_config": {"RequiredAcks": acks}, "topic_partitions": "1"})
    sink.emit(rows(range(500)))
    sink.flush()
    deadline = time.monotonic() + 300
    while len(messages := kafka.received()) < 500 and acks == "NONE":  # no acknowledgement says when they arrive
        assert time.monotonic() < deadline
    assert [message.key for message in messages] == [f"[{key}]".encode() for key in range(500)]


def test_the_client_writes_to_logging_and_not_to_stderr(
    kafka: KafkaRig, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        sink = kafka.sink({"librdkafka": {"debug": "broker"}, "kafka_sink_config": {"ClientID": "noisy"}})
        sink.emit(rows([1]))
        sink.flush()
    assert capfd.readouterr().err == ""
