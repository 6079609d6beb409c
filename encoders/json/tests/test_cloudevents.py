"""CloudEvents: what identifies an event, what it holds, and that the official SDK reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.request import urlopen

import numpy as np
import pytest
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_schema_registry import Registry as RegistryClient
from cdc_testing.kafka_fixtures import Registry
from cloudevents.core.formats.json import JSONFormat
from jsonschema import Draft7Validator

from cdc_core import (
    CloudEvents,
    EncoderContext,
    Envelope,
    Op,
    OptionError,
    RowBatch,
    Timestamp,
    each_event,
    unavailable_column,
)

ORDERS = table("orders", {"id": INT8, "note": TEXT})
NAMED = table("größe", {"id": TEXT, "note": TEXT})
WALL = 1_769_860_800_123_456_789
Event = dict[str, Any]


def context(mode: Literal["structured", "binary"] = "structured", **changes: Any) -> EncoderContext:
    envelope = Envelope(name="cloudevents", **changes.pop("flags", {}))
    events = CloudEvents(source="/cdc/feed", mode=mode)
    fields: dict[str, Any] = {"envelope": envelope, "options": JsonOptions(), "events": events}
    return EncoderContext(changefeed="feed", **fields | changes)


def structured(batch: RowBatch, **changes: Any) -> list[Event]:
    """Return the events as JSON, each of which the SDK accepts."""
    values = JsonEncoder(context(**changes)).encode(batch, topic="orders").value.to_pylist()
    for value in values:
        event = JSONFormat().read(None, value)
        assert event.get_specversion() == "1.0"
    return [json.loads(value) for value in values]


def attributes(batch: RowBatch, **changes: Any) -> list[dict[str, str]]:
    messages = JsonEncoder(context("binary", **changes)).encode(batch, topic="orders")
    assert messages.attributes is not None
    return list(each_event(messages.attributes, len(batch)))


def history() -> RowBatch:
    at = Timestamp(WALL, 3)
    changes = [
        Change({"id": 1, "note": "a"}, op=Op.SCAN, updated=at),
        Change({"id": 1, "note": 'b "c"'}, op=Op.INSERT, updated=at),
        Change({"id": 2, "note": None}, op=Op.UPDATE, updated=Timestamp(WALL + 1000)),
        Change({"id": 2}, op=Op.DELETE, updated=Timestamp(WALL + 2000)),
    ]
    return rows(ORDERS, changes)


def test_an_event_says_what_happened_to_which_row_and_when() -> None:
    first, second, third, fourth = structured(history(), flags={"updated": True})
    assert second == {
        "data": {"after": {"id": 1, "note": 'b "c"'}, "updated": f"{WALL}.0000000003"},
        "datacontenttype": "application/json",
        "id": f"{WALL}.0000000003:insert:[1]",
        "partitionkey": "[1]",
        "source": "/cdc/feed/shop/public/orders",
        "specversion": "1.0",
        "subject": "[1]",
        "time": "2026-01-31T12:00:00.123456Z",
        "type": "cdc.insert",
    }
    assert [event["type"] for event in (first, third, fourth)] == ["cdc.scan", "cdc.update", "cdc.delete"]
    assert fourth["data"]["after"] is None
    assert list(second) == sorted(second)


def test_both_modes_have_the_same_attributes_and_the_same_data() -> None:
    batch = history()
    data = JsonEncoder(context("binary")).encode(batch, topic="orders").value.to_pylist()
    for event, separate, rest in zip(structured(batch), attributes(batch), data, strict=True):
        assert event == {**separate, "data": json.loads(rest)}


def test_an_event_has_the_same_id_in_every_repetition_and_no_other_event_has_it() -> None:
    batch = history()
    ids = [event["id"] for event in structured(batch)]
    assert len(set(ids)) == 4  # the first two rows have the same key and timestamp, as after a change of the schema
    assert [event["id"] for event in structured(batch.slice(2))] == ids[2:]
    assert [event["id"] for event in attributes(batch.slice(1, 2))] == ids[1:3]
    with_other_data = structured(batch, flags={"updated": True, "topic_in_value": True})
    assert [event["id"] for event in with_other_data] == ids


def test_a_long_key_does_not_make_a_long_id() -> None:
    keys = ["x" * 60, "x" * 200, "x" * 201, 'q"\\']
    batch = rows(NAMED, [Change({"id": key, "note": "n"}, updated=Timestamp(5)) for key in keys])
    events = structured(batch)
    assert [json.loads(event["subject"]) for event in events] == [[key] for key in keys]
    assert [event["partitionkey"] for event in events] == [event["subject"] for event in events]
    assert len({event["id"] for event in events}) == 4
    assert all(len(event["id"]) < 130 for event in events)
    assert [event["id"] for event in attributes(batch)] == [event["id"] for event in events]
    assert [event["subject"] for event in attributes(batch)] == [event["subject"] for event in events]


def test_the_source_is_a_uri_whatever_the_table_is_called() -> None:
    batch = rows(NAMED, [Change({"id": "1", "note": "n"})])
    (event,) = structured(batch, events=CloudEvents(source="https://shop.example/", type_prefix="example.shop."))
    assert event["source"] == "https://shop.example/shop/public/gr%C3%B6%C3%9Fe"
    assert event["type"] == "example.shop.insert"


def test_the_key_of_the_message_is_the_partition_key() -> None:
    batch = history()
    messages = JsonEncoder(context(key_column="note")).encode(batch, topic="orders")
    events = structured(batch, key_column="note")
    assert [event["partitionkey"].encode() for event in events] == messages.key.to_pylist()
    assert [event["subject"] for event in events] == ["[1]", "[1]", "[2]", "[2]"]


def test_rows_with_unavailable_values_are_events_too() -> None:
    batch = history().slice(1, 2)
    lacking = unavailable_column({"note": np.array([False, True])})
    incomplete = RowBatch(schema=batch.schema, batch=batch.batch.append_column("unavailable", lacking))
    whole, part = structured(incomplete)
    assert whole["data"] == {"after": {"id": 1, "note": 'b "c"'}}
    assert (part["data"], part["subject"]) == ({"after": {"id": 2}, "unavailable": ["note"]}, "[2]")


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_resolved_mark_is_an_event_of_the_whole_changefeed(mode: Literal["structured", "binary"]) -> None:
    mark = Timestamp(WALL, 7)
    value = JsonEncoder(context(mode)).encode_resolved("orders", mark)
    assert JsonDecoder(context(mode)).resolved(value) == mark
    row = JsonEncoder(context(mode)).encode(history(), topic="orders").value[0].as_py()
    assert JsonDecoder(context(mode)).resolved(row) is None
    expected = {
        "datacontenttype": "application/json",
        "id": f"{mark}:resolved",
        "source": "/cdc/feed",
        "specversion": "1.0",
        "time": "2026-01-31T12:00:00.123456Z",
        "type": "cdc.resolved",
    }
    if mode == "binary":
        assert json.loads(value) == {"resolved": str(mark)}
        assert CloudEvents(source="/cdc/feed").resolved(mark) == expected
        return
    assert json.loads(value) == {**expected, "data": {"resolved": str(mark)}}
    event = JSONFormat().read(None, value)
    assert event.get_time() == datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def test_an_event_says_to_the_decoder_what_happened() -> None:
    batch = history()
    messages = JsonEncoder(context()).encode(batch, topic="orders")
    pairs: Sequence[tuple[bytes, bytes]] = list(zip(messages.key.to_pylist(), messages.value.to_pylist(), strict=True))
    found = [JsonDecoder(context()).message(ORDERS, key, value) for key, value in pairs]
    assert [row.op for row in found] == [Op.INSERT, Op.INSERT, Op.UPDATE, Op.DELETE]
    other = context(events=CloudEvents(source="/cdc/feed", type_prefix="other."))
    with pytest.raises(ValueError, match=r"unknown event type 'cdc\.scan'"):
        JsonDecoder(other).message(ORDERS, *pairs[0])


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_an_event_has_the_url_of_the_schema_of_its_data(
    mode: Literal["structured", "binary"], schema_registry: Registry
) -> None:
    address = schema_registry.url.replace("://", "://user:secret@")
    options, topic = JsonOptions(confluent_schema_registry=address), f"cloudevents-{mode}"
    encoder = JsonEncoder(context(mode, options=options))
    encoder.check([(ORDERS, topic)])
    messages = encoder.encode(history(), topic=topic)
    values = [json.loads(value) for value in messages.value.to_pylist()]
    found = values if messages.attributes is None else list(each_event(messages.attributes, len(history())))
    (url,) = {event["dataschema"] for event in found}
    assert url.startswith(f"{schema_registry.url.rstrip('/')}/schemas/ids/")
    with urlopen(url) as answer:
        schema = json.loads(json.load(answer)["schema"])
    for value in values:
        Draft7Validator(schema).validate(value if mode == "binary" else value["data"])
    assert "dataschema" not in json.loads(encoder.encode_resolved(topic, Timestamp(5)))
    registry = RegistryClient.of(address, owner="test")
    assert registry.latest(f"{topic}-key") is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"output": "files"}, "CloudEvents defines no format for files of lines; use envelope 'wrapped'"),
        ({"flags": {"enriched_properties": ("source",)}}, "'enriched_properties' requires envelope 'enriched'"),
    ],
)
def test_what_cannot_be_an_event_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        JsonEncoder(context(**changes))


@pytest.mark.parametrize("source", ["", "a b", "/größe", "/a?b", "/a#b", '/"'])
def test_a_source_that_is_no_uri_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="option 'cloudevents_source' must be a URI"):
        CloudEvents(source=source)
    with pytest.raises(ValueError, match="option 'cloudevents_type_prefix' is "):
        CloudEvents(source="/", type_prefix="a b")
