from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_kafka.admin import Administrator
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows, version

from cdc_core import Flushed, RefusedRow, RefusedRowsError, RetryableSinkError


def test_a_message_too_large_is_delivered_when_compression_makes_it_small(kafka: KafkaRig) -> None:
    kafka.create_topic(1, max_message_bytes="3000")
    sink = kafka.sink({"kafka_sink_config": {"Compression": "GZIP", "CompressionLevel": 9}})
    sink.emit(rows([1, 2], texts=["y" * 100_000, "x"]))
    sink.flush()
    assert len(kafka.received()) == 2


@pytest.mark.parametrize("limit", [1000, 1700, 5000])
def test_batches_are_never_larger_than_the_topic_takes(limit: int, kafka: KafkaRig) -> None:
    kafka.create_topic(1, max_message_bytes=str(limit))
    sink = kafka.sink({"kafka_sink_config": {"Flush": {"Bytes": 100_000, "Frequency": "50ms"}}})
    sink.emit(rows(range(3000), texts=["z" * (number * 37 % 700) for number in range(3000)]))
    sink.flush()
    assert len(kafka.received()) == 3000


def test_a_batch_refused_without_a_known_limit_is_split_when_the_step_is_repeated(
    kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Administrator, "limits", lambda _, topics: dict.fromkeys(topics))
    kafka.create_topic(1, max_message_bytes="2000")
    batch = rows(range(300), texts=["x" * 1000] * 300)

    def attempt() -> None:
        sink = kafka.sink({"kafka_sink_config": {"Flush": {"Messages": 100, "Frequency": "200ms"}}})
        sink.emit(batch)
        sink.flush()

    with pytest.raises(RetryableSinkError) as refused:
        attempt()
    assert str(refused.value) == (
        f"topic '{kafka.topic}' refused a batch of several messages because of its size (its limit); the step is"
        " repeated with one message in each batch"
    )
    attempt()
    assert [version(message)[0] for message in kafka.received()] == list(range(300))


def test_a_single_message_refused_without_a_known_limit_is_named_by_its_key(
    kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Administrator, "limits", lambda _, topics: dict.fromkeys(topics))
    kafka.create_topic(1, max_message_bytes="2000")
    sink = kafka.sink()
    sink.emit(rows([5], texts=["x" * 30_000]))
    with pytest.raises(RefusedRowsError, match=r"row with key {'id': 5} of table public.orders has 30035 bytes"):
        sink.flush()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"kafka_sink_config": {"Flush": {"MaxBytes": 66_000}}}, "Flush.MaxBytes in kafka_sink_config allows 66000"),
        ({"buffer_size": "64KB"}, "buffer_size allows 65536"),
    ],
)
def test_flush_lists_the_messages_that_are_too_large_for_the_client_and_delivers_the_others(
    options: dict[str, Any], limit: str, kafka: KafkaRig
) -> None:
    sink = kafka.sink(options)
    sink.emit(rows([0]))
    sink.emit(rows([1, 2, 3], texts=["a", "b" * 66_000, "c"]))
    reason = (
        f"the message of the row with key {{'id': 2}} of table public.orders has 66035 bytes, but {limit}; raise"
        " the limit, or remove the table from the changefeed"
    )
    flushed = sink.flush()
    assert flushed.refused == (RefusedRow(index=2, reason=reason),)
    messages = kafka.received()
    assert (flushed.messages, flushed.bytes) == (3, sum(len(m.key or b"") + len(m.value or b"") for m in messages))
    assert sorted(version(message)[0] for message in messages) == [0, 1, 3]
    sink.emit(rows([4], texts=["b" * 66_000]))
    flushed = sink.flush()
    assert flushed.messages == 0
    assert [row.index for row in flushed.refused] == [0], "the count starts again after a flush"
    assert sink.flush() == Flushed()


def test_messages_almost_as_large_as_the_buffer_are_delivered_one_by_one(kafka: KafkaRig) -> None:
    sink = kafka.sink({"buffer_size": "64KB", "header_table": "t", "topic_partitions": "1"})
    sink.emit(rows(range(20), texts=["b" * 65_000] * 20))
    sink.flush()
    assert len(kafka.received()) == 20


def test_single_messages_that_are_refused_for_their_size_are_bad_rows(kafka: KafkaRig) -> None:
    kafka.create_topic(1, max_message_bytes="3000")
    raised: list[Exception] = []
    for _ in range(2):
        sink = kafka.sink({"kafka_sink_config": {"RequiredAcks": "ONE"}})
        sink.emit(rows([1, 2], texts=["b" * 4000] * 2))
        with pytest.raises((RetryableSinkError, RefusedRowsError)) as refused:
            sink.flush()
        raised.append(refused.value)
        sink.close()
    assert isinstance(raised[-1], RefusedRowsError)
    assert "the row with key {'id': 1} of table public.orders has 4035 bytes" in str(raised[-1])


def test_a_message_too_large_because_of_its_headers_names_table_key_and_size(kafka: KafkaRig) -> None:
    sink = kafka.sink({"extra_headers": {"h": "x" * 2000}, "kafka_sink_config": {"Flush": {"MaxBytes": 2000}}})
    sink.emit(rows([5]))
    reason = (
        "the message of the row with key {'id': 5} of table public.orders has 2042 bytes, but Flush.MaxBytes in"
        " kafka_sink_config allows 2000; raise the limit, or remove the table from the changefeed"
    )
    assert sink.flush() == Flushed(refused=(RefusedRow(index=0, reason=reason),))


def test_a_refusal_of_the_broker_forgets_the_rows_that_were_too_large_for_the_client(kafka: KafkaRig) -> None:
    kafka.create_topic(1, max_message_bytes="2000")
    sink = kafka.sink({"kafka_sink_config": {"Flush": {"MaxBytes": 6000}}})
    sink.emit(rows([1, 2], texts=["b" * 7000, "b" * 5000]))
    with pytest.raises(RefusedRowsError) as refused:
        sink.flush()
    assert refused.value.row == 1
    assert sink.flush() == Flushed()
