from __future__ import annotations

import json

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows

from cdc_core import EncoderContext, Envelope

OPTIONS = {"tombstones_on_delete": "true", "topic_partitions": "1"}


def wrapped(envelope: str = "wrapped") -> JsonEncoder:
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=Envelope(name=envelope), options=JsonOptions()))


def arrived(kafka: KafkaRig) -> list[tuple[int, str]]:
    return [(json.loads(message.key or b"")[0], kind(message.value)) for message in kafka.received()]


def kind(value: bytes | None) -> str:
    if value is None:
        return "tombstone"
    return "gone" if json.loads(value)["after"] is None else "row"


@pytest.mark.parametrize("headers", [{}, {"extra_headers": {"origin": "shop"}}])
def test_a_tombstone_directly_follows_the_message_of_a_deleted_row(kafka: KafkaRig, headers: dict[str, object]) -> None:
    sink = kafka.sink(OPTIONS | headers, encoder=wrapped())
    sink.emit(rows([1, 2, 3, 1], deleted=[2, 3]))
    sink.emit(rows([2]))
    flushed = sink.flush()
    messages = kafka.received()
    assert arrived(kafka) == [
        (1, "row"),
        (2, "gone"),
        (2, "tombstone"),
        (3, "gone"),
        (3, "tombstone"),
        (1, "row"),
        (2, "row"),
    ]
    assert flushed.messages == 7
    assert flushed.bytes == sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    assert all(message.headers == ((("origin", b"shop"),) if headers else ()) for message in messages)


def test_a_refused_row_beside_deleted_ones_is_the_one_that_was_emitted(kafka: KafkaRig) -> None:
    sink = kafka.sink(OPTIONS | {"kafka_sink_config": {"Flush": {"MaxBytes": 2000}}}, encoder=wrapped())
    sink.emit(rows([1, 2, 3], deleted=[1, 3], texts=["x", "y" * 3000, "x"]))
    flushed = sink.flush()
    assert [row.index for row in flushed.refused] == [1]
    assert arrived(kafka) == [(1, "gone"), (1, "tombstone"), (3, "gone"), (3, "tombstone")]


def test_an_envelope_whose_deletes_are_tombstones_gets_no_second_one(kafka: KafkaRig) -> None:
    sink = kafka.sink(OPTIONS, encoder=wrapped("row"))
    sink.emit(rows([1, 2], deleted=[1]))
    assert sink.flush().messages == 2
    assert [message.value is None for message in kafka.received()] == [True, False]
