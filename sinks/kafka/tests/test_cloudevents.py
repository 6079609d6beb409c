"""CloudEvents in Kafka: the official SDK reads what consumers get, in both modes."""

from __future__ import annotations

from typing import Literal

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.kafka_reading import Message
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import JSON, rows
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

from cdc_core import CloudEvents, ConfigError, EncodeError, EncoderContext, Envelope, Timestamp

Mode = Literal["structured", "binary"]
ONE_PARTITION = {"topic_partitions": "1"}


def encoder(mode: Mode) -> JsonEncoder:
    events = CloudEvents(source="/cdc/feed", mode=mode)
    envelope = Envelope(name="cloudevents")
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=envelope, options=JsonOptions(), events=events))


def event(message: Message) -> BaseCloudEvent:
    headers = {name: value or b"" for name, value in message.headers}
    return from_kafka(KafkaMessage(headers, message.key, message.value or b""), JSONFormat())


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_sdk_reads_rows_and_resolved_marks(mode: Mode, kafka: KafkaRig) -> None:
    sink = kafka.sink(ONE_PARTITION, encoder=encoder(mode))
    sink.emit(rows([1, 2], walls=[70, 80_000], texts=["größe", "x"], deleted=[2]))
    sink.flush()
    kafka.resolved_sink(ONE_PARTITION, encoder=encoder(mode)).emit_resolved(Timestamp(90_000))
    first, second, mark = messages = kafka.received()
    content_type = "application/json" if mode == "binary" else "application/cloudevents+json; charset=UTF-8"
    assert [dict(message.headers)["content-type"] for message in messages] == [content_type.encode()] * 3
    assert mark.key is None
    one, two, three = event(first), event(second), event(mark)
    assert [one.get_type(), two.get_type(), three.get_type()] == ["cdc.update", "cdc.delete", "cdc.resolved"]
    assert [one.get_id(), two.get_id(), three.get_id()] == [
        "70.0000000000:update:[1]",
        "80000.0000000000:delete:[2]",
        "90000.0000000000:resolved",
    ]
    assert one.get_data() == {"after": {"id": 1, "text": "größe"}}
    assert two.get_data() == {"after": None}
    assert three.get_data() == {"resolved": "90000.0000000000"}
    assert (one.get_source(), three.get_source()) == ("/cdc/feed/shop/public/orders", "/cdc/feed")
    assert (one.get_subject(), one.get_extension("partitionkey"), one.get_datacontenttype()) == (
        "[1]",
        "[1]",
        "application/json",
    )
    moment = two.get_time()
    assert moment is not None
    assert moment.isoformat() == "1970-01-01T00:00:00.000080+00:00"


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_tombstone_is_no_event(mode: Mode, kafka: KafkaRig) -> None:
    options = {**ONE_PARTITION, "tombstones_on_delete": "true", "extra_headers": '{"origin": "shop"}'}
    sink = kafka.sink(options, encoder=encoder(mode))
    sink.emit(rows([1, 2], deleted=[1]))
    sink.flush()
    gone, tombstone, row = kafka.received()
    assert [event(gone).get_type(), event(row).get_type()] == ["cdc.delete", "cdc.update"]
    assert dict(gone.headers)["origin"] == b"shop"
    assert (tombstone.value, tombstone.headers) == (None, (("origin", b"shop"),))


def test_other_headers_are_beside_those_of_the_event(kafka: KafkaRig) -> None:
    options = {**ONE_PARTITION, "header_table": "table", "headers_json_column_name": "meta"}
    sink = kafka.sink(options, encoder=encoder("binary"))
    sink.emit(rows([1], extra={"meta": (JSON, ['{"a": "b"}'])}))
    sink.flush()
    (message,) = kafka.received()
    headers = dict(message.headers)
    assert (headers["table"], headers["a"], headers["ce_type"]) == (b"shop.public.orders", b"b", b"cdc.update")
    assert event(message).get_data() == {"after": {"id": 1, "text": "x"}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"extra_headers": '{"Content-Type": "x"}'}, "the header 'Content-Type' of extra_headers is set by envelope"),
        ({"header_table": "ce_subject"}, "the header 'ce_subject' of header_table is set by envelope 'cloudevents'"),
        ({"header_updated": "CE_time"}, "the header 'CE_time' of header_updated is set by envelope 'cloudevents'"),
    ],
)
def test_a_header_that_events_have_is_refused(options: dict[str, str], sentence: str, kafka: KafkaRig) -> None:
    with pytest.raises(ConfigError, match=sentence):
        kafka.at("").destination(options, encoder=encoder("structured")).check()
    kafka.at("").context(options)  # which is nothing special in another envelope


def test_a_row_whose_headers_would_replace_those_of_the_event_is_bad(kafka: KafkaRig) -> None:
    sink = kafka.sink({"headers_json_column_name": "meta"}, encoder=encoder("binary"))
    batch = rows([1, 2], extra={"meta": (JSON, ["{}", '{"ce_id": "7"}'])})
    with pytest.raises(
        EncodeError,
        match=r"contains the header 'ce_id', which is reserved for CloudEvents, in the row with key \{'id': 2\}",
    ) as refused:
        sink.emit(batch)
    assert refused.value.row == 1


def test_a_preview_shows_the_headers(kafka: KafkaRig) -> None:
    batch = kafka.at("").destination(encoder=encoder("binary")).preview(rows([1]))
    assert batch.headers is not None
    assert dict(batch.headers[0].as_py())["ce_subject"] == b"[1]"
