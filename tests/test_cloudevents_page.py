"""CloudEvents, from the options on the page to what its functions read; and what the page says is refused."""

from __future__ import annotations

import base64
import json
import tomllib
from contextlib import closing
from typing import Any

import pytest
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_testing.cloud_events import PAGE, of_kafka, of_request
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import read_topics
from cdc_testing.webhook_server import WebhookServer

from cdc_core import Changefeed, Op, OptionError, SliceInfo, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve, resolve_without_sink
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.host import PluginHost

ORDERS = table("orders", {"id": INT8, "amount": INT8})
AT = Timestamp(1_769_860_800_123_456_000)
FLUSH = {"webhook_sink_config": {"Flush": {"Messages": 10, "Frequency": "1m"}}}


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return PluginHost.load()


def written() -> dict[str, Any]:
    (text,) = PAGE.blocks("toml")
    changefeed: dict[str, Any] = tomllib.loads(text)["changefeed"]["orders"]
    return changefeed


def changefeed(sink: str, **options: Any) -> Changefeed:
    return Changefeed(**{**written(), "name": "orders", "sink": sink, "options": {**written()["options"], **options}})


def deliver(feed: ResolvedChangefeed) -> None:
    feed = feed.for_attempt(feed_id="0123456789ab", epoch=1, table_names=[ORDERS.name])
    with closing(Parts(feed).open_destination()) as destination:
        destination.prepare()
    with closing(Parts(feed).open_sink()) as sink:
        sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
        sink.emit(rows(ORDERS, [Change({"id": 42, "amount": 7}, op=Op.UPDATE, updated=AT)]))
        sink.flush()
    with closing(Parts(feed).open_resolved_sink()) as resolved:
        resolved.emit_resolved(AT)


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_consumer_of_kafka_reads_what_the_page_shows(
    mode: str, host: PluginHost, kafka_broker: Kafka, topic_prefix: str
) -> None:
    options = {"cloudevents_mode": mode, "topic_prefix": topic_prefix, "topic_partitions": 1}
    deliver(resolve(changefeed(f"kafka://{kafka_broker.bootstrap_servers}", **options), host))
    messages = read_topics(kafka_broker.bootstrap_servers, [f"{topic_prefix}orders"])
    shown, mark = map(json.loads, PAGE.blocks("json"))
    assert [as_json(of_kafka(message)) for message in messages] == [shown, mark]
    if mode == "structured":
        assert [json.loads(message.value or b"") for message in messages] == [shown, mark]


@pytest.mark.parametrize("options", [{}, {"cloudevents_mode": "binary"}, FLUSH])
def test_an_endpoint_reads_what_the_page_shows(
    options: dict[str, Any], host: PluginHost, webhook_server: WebhookServer
) -> None:
    path = webhook_server.new_path()
    deliver(resolve(changefeed(webhook_server.uri(path), **webhook_server.trust, **options), host))
    shown, mark = map(json.loads, PAGE.blocks("json"))
    found = [
        as_json(event)
        for request in webhook_server.requests(path)
        for event in of_request(request["headers"], base64.b64decode(request["body"]))
    ]
    shown["data"] |= {"key": [42], "topic": "orders"}
    if options.get("cloudevents_mode") == "binary":  # the header Content-Type stands for it
        assert [event["datacontenttype"] for event in found] == ["application/json"] * 2
    assert found == [shown, mark]


def as_json(event: Any) -> dict[str, Any]:
    attributes = {name: value for name, value in event.get_attributes().items() if value is not None}
    time = attributes["time"].isoformat().replace("+00:00", "Z")
    return {**attributes, "time": time, "data": event.get_data()}


@pytest.mark.parametrize(
    ("sink", "options", "sentence"),
    [
        ("kafka://b", {"format": "avro"}, "encoder 'avro' does not write envelope 'cloudevents'; it writes bare"),
        ("kafka://b", {"format": "protobuf"}, "encoder 'protobuf' does not write envelope 'cloudevents'"),
        ("webhook-https://h", {"format": "csv", "initial_scan": "only"}, "encoder 'csv' does not write envelope"),
        ("file:///d", {"format": "parquet"}, "sink 'cloudstorage' does not accept envelope 'cloudevents'"),
        ("file:///d", {}, "sink 'cloudstorage' does not accept envelope 'cloudevents'; it accepts bare, enriched, wr"),
        ("kafka://b", {"enriched_properties": "source"}, "'enriched_properties' requires envelope 'enriched'"),
        ("kafka://b", {"envelope": "wrapped"}, "option 'cloudevents_source' requires envelope 'cloudevents'; remove"),
        (
            "kafka://b",
            {"cloudevents_source": "a b"},
            "option 'cloudevents_source' must be a URI without a query or fragment, not 'a b'",
        ),
        (
            "kafka://b",
            {"cloudevents_type_prefix": "é"},
            "option 'cloudevents_type_prefix' is 'é', which has characters",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(
    sink: str, options: dict[str, Any], sentence: str, host: PluginHost
) -> None:
    format_ = options.pop("format", "json")
    feed = changefeed(sink, **options)
    with pytest.raises(OptionError, match=sentence):
        resolve(
            Changefeed(**{**written(), "name": "c", "sink": sink, "options": feed.options, "format": format_}), host
        )


def test_watching_shows_structured_events_only(host: PluginHost) -> None:
    feed = resolve_without_sink(changefeed("kafka://b"), host)
    assert json.loads(Parts(feed).open_encoder().encode_resolved("", AT)) == json.loads(PAGE.blocks("json")[1])
    with pytest.raises(OptionError, match="'binary' puts attributes into headers, but messages without a sink"):
        resolve_without_sink(changefeed("kafka://b", cloudevents_mode="binary"), host)
