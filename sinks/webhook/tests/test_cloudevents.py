"""CloudEvents over HTTP: the official SDK reads what the endpoint gets, in every mode."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

import pytest
from cdc_conformance.rows import TEXT, Change, table
from cdc_conformance.rows import rows as rows_of
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_sink_webhook.destination import WebhookDestination
from cdc_sink_webhook.settings import Settings
from cdc_testing.webhook_rig import WebhookRig, context, flush
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat

from cdc_core import (
    CloudEvents,
    ConfigError,
    EncoderContext,
    Envelope,
    RowBatch,
    TerminalSinkError,
    Timestamp,
)

Mode = Literal["structured", "binary"]
NAMED = table("orders", {"id": TEXT})
EVENT, EVENTS = "application/cloudevents+json; charset=UTF-8", "application/cloudevents-batch+json; charset=UTF-8"


def encoder(mode: Mode = "structured") -> JsonEncoder:
    envelope = Envelope(name="cloudevents", key_in_value=True, topic_in_value=True)
    events = CloudEvents(source="/cdc/feed", mode=mode)
    return JsonEncoder(EncoderContext(changefeed="feed", envelope=envelope, options=JsonOptions(), events=events))


def named(*names: str) -> RowBatch:
    return rows_of(NAMED, [Change({"id": name}, updated=Timestamp(70 + at)) for at, name in enumerate(names)])


def event(request: dict[str, Any]) -> BaseCloudEvent:
    return from_http(HTTPMessage(request["headers"], base64.b64decode(request["body"])), JSONFormat())


@pytest.mark.parametrize(("mode", "content_type"), [("structured", EVENT), ("binary", "application/json")])
def test_the_sdk_reads_each_request(hook: WebhookRig, mode: Mode, content_type: str) -> None:
    sink = hook.sink({"compression": "none"}, encoder=encoder(mode))
    sink.emit(named('größe "50%"', "b"))
    assert sink.flush().messages == 2
    hook.resolved_sink(encoder=encoder(mode)).emit_resolved(Timestamp(90))
    requests = hook.server.requests(hook.path)
    assert [request["headers"]["content-type"] for request in requests] == [content_type] * 3
    events = {found.get_id(): found for found in map(event, requests)}
    assert list(events)[2] == "90.0000000000:resolved"
    first = events['70.0000000000:insert:["größe \\"50%\\""]']
    assert first.get_subject() == first.get_extension("partitionkey") == '["größe \\"50%\\""]'
    assert first.get_data() == {"after": {"id": 'größe "50%"'}, "key": ['größe "50%"'], "topic": "orders"}
    assert (first.get_source(), first.get_type()) == ("/cdc/feed/shop/public/orders", "cdc.insert")
    assert events["90.0000000000:resolved"].get_data() == {"resolved": "90.0000000000"}
    assert events["90.0000000000:resolved"].get_type() == "cdc.resolved"


def test_batches_are_arrays_of_events_and_a_mark_is_an_array_too(hook: WebhookRig) -> None:
    options = {**flush(Messages=3), "compression": "gzip"}
    sink = hook.sink(options, encoder=encoder())
    with hook.server.failing(refused_keys={"": 200}):
        sink.emit(named("a", "b", "c", "d"))
        sink.flush()
    hook.resolved_sink(options, encoder=encoder()).emit_resolved(Timestamp(90))
    assert {request["headers"]["content-type"] for request in hook.server.requests(hook.path)} == {EVENTS}
    batches = [json.loads(body) for body in hook.server.bodies(hook.path)]
    read = [[JSONFormat().read(None, json.dumps(one)) for one in batch] for batch in batches]
    assert sorted(len(batch) for batch in read) == [1, 1, 3]
    assert sorted(one.get_subject() or "" for batch in read for one in batch) == [
        "",
        '["a"]',
        '["b"]',
        '["c"]',
        '["d"]',
    ]
    assert read[2][0].get_data() == {"resolved": "90.0000000000"}


def test_a_refused_event_is_found_in_its_batch(hook: WebhookRig) -> None:
    sink = hook.sink(flush(Messages=4), encoder=encoder())
    script = [{"status": 400}, {}, {"status": 400}, {}, {"status": 400}]  # halves: a b, c d, c, d
    with hook.server.failing(*script):
        sink.emit(named("a", "b", "c", "d"))
        assert [row.index for row in sink.flush().refused] == [3]
    delivered = [one["subject"] for body in hook.server.bodies(hook.path) for one in json.loads(body)]
    assert delivered == ['["a"]', '["b"]', '["c"]']


def test_a_row_whose_key_is_too_long_for_headers_is_refused_and_not_sent(hook: WebhookRig) -> None:
    sink = hook.sink(encoder=encoder("binary"))
    sink.emit(named("a", "x" * 5000, "b"))
    flushed = sink.flush()
    (refused,) = flushed.refused
    assert (flushed.messages, refused.index, len(hook.server.requests(hook.path))) == (2, 1, 2)
    assert refused.reason.startswith("the attributes of its event have 10")
    assert refused.reason.endswith("and headers may have 4096; set cloudevents_mode = 'structured'")
    other = hook.sink(encoder=encoder())
    other.emit(named("x" * 5000))
    assert other.flush().messages == 1


def test_the_answer_431_is_about_a_row_with_long_attributes_and_otherwise_about_the_settings(hook: WebhookRig) -> None:
    sink = hook.sink(encoder=encoder("binary"))
    with hook.server.failing({"status": 431, "text": "too large"}):
        sink.emit(named("x" * 600))
        (refused,) = sink.flush().refused
    assert (refused.index, refused.reason, len(hook.server.requests(hook.path))) == (0, "431: too large", 1)
    with hook.server.failing(*[{"status": 431}] * 4):
        sink.emit(named("short"))
        with pytest.raises(TerminalSinkError, match=r"431\. Shorten extra_headers"):
            sink.flush()


def test_a_request_in_mode_binary_has_the_same_id_when_it_is_repeated_and_another_for_another_event(
    hook: WebhookRig,
) -> None:
    for batch in (named("a"), named("a"), named("b")):
        sink = hook.sink(encoder=encoder("binary"))
        sink.emit(batch)
        sink.flush()
    first, again, other = (request["headers"]["idempotency-key"] for request in hook.server.requests(hook.path))
    assert first == again != other


@pytest.mark.parametrize(
    ("mode", "options", "sentence"),
    [
        (
            "binary",
            {"webhook_sink_config": '{"Flush": {"Messages": 5, "Frequency": "1s"}}'},
            "cloudevents_mode 'binary' sends one event in each request; remove Flush from webhook_sink_config",
        ),
        (
            "structured",
            {"extra_headers": '{"CE-Id": "x"}'},
            "extra_headers contains 'CE-Id', which envelope 'cloudevents' sets itself",
        ),
    ],
)
def test_what_does_not_go_with_events_is_refused(mode: Mode, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Settings.of(context("webhook-https://localhost/", options, encoder=encoder(mode)))
    Settings.of(context("webhook-https://localhost/", options))


def test_a_preview_shows_the_headers() -> None:
    destination = WebhookDestination(context("webhook-https://localhost/", {}, encoder=encoder("binary")))
    batch = destination.preview(named("ä"))
    assert batch.headers is not None
    assert dict(batch.headers[0].as_py())["ce-subject"] == b"[%22%C3%A4%22]"
