"""Delivery to a real endpoint, whatever it answers."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import pytest
import zstandard
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.webhook_rig import CsvEncoder, WebhookRig, encoder, flush, rows
from cdc_testing.webhook_server import WebhookServer

from cdc_core import (
    CdcError,
    Flushed,
    RefusedRow,
    RetryableSinkError,
    RowBatch,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)


def seen(server: WebhookServer, path: str) -> list[list[int]]:
    """Return the keys in each acknowledged body."""
    return [[message["key"][0] for message in json.loads(body)["payload"]] for body in server.bodies(path)]


def delivered(server: WebhookServer, path: str) -> list[int]:
    return sorted(key for keys in seen(server, path) for key in keys)


def write(sink: WebhookSink, *batches: RowBatch) -> Flushed:
    for batch in batches:
        sink.emit(batch)
    return sink.flush()


def error_of(call: Callable[[], object]) -> CdcError:
    with pytest.raises(CdcError) as raised:
        call()
    return raised.value


def test_a_request_is_a_post_of_json(hook: WebhookRig) -> None:
    write(hook.sink(), rows([1]))
    (request,) = hook.server.requests(hook.path)
    body = b'{"payload":[{"key": [1], "note": "x", "topic": "orders", "wall": 1}],"length":1}'
    assert (request["method"], base64.b64decode(request["body"])) == ("POST", body)
    assert request["headers"]["content-type"] == "application/json"
    assert "authorization" not in request["headers"]
    assert request["http"] == "2"


def test_a_resolved_mark_is_a_bare_object(hook: WebhookRig) -> None:
    hook.resolved_sink().emit_resolved(Timestamp(5, 1))
    assert hook.server.bodies(hook.path) == [b'{"resolved":"5.0000000001"}']


def test_csv_rows_are_sent_as_lines(hook: WebhookRig) -> None:
    write(hook.sink(flush(Messages=3), encoder=encoder(CsvEncoder)), rows([1, 2, 3]))
    (request,) = hook.server.requests(hook.path)
    assert request["headers"]["content-type"] == "text/csv"
    assert hook.server.bodies(hook.path) == [b"1,x\n2,x\n3,x\n"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_body_has_a_content_encoding(hook: WebhookRig, compression: str) -> None:
    opened: dict[str, Any] = {"gzip": gzip.decompress, "zstd": zstandard.ZstdDecompressor().decompress}
    write(hook.sink({"compression": compression}), rows([1]))
    (request,) = hook.server.requests(hook.path)
    assert request["headers"]["content-encoding"] == compression
    assert opened[compression](base64.b64decode(request["body"])) == hook.server.bodies(hook.path)[0]


def test_every_request_has_the_configured_headers(hook: WebhookRig) -> None:
    options = {
        "webhook_auth_header": "Bearer abc",
        "extra_headers": '{"X-Api-Key": "k e y", "User-Agent": "shop"}',
        "webhook_query": "code=a%20b",
    }
    write(hook.sink(options), rows([1]))
    hook.resolved_sink(options).emit_resolved(Timestamp(9))
    for request in hook.server.requests(hook.path):
        headers = request["headers"]
        assert (headers["authorization"], headers["x-api-key"], headers["user-agent"]) == (
            "Bearer abc",
            "k e y",
            "shop",
        )
        assert request["query"] == "code=a%20b"
    assert len(hook.server.requests(hook.path)) == 2


@pytest.mark.parametrize(
    "fault", [{"status": 500}, {"status": 429}, {"reset": "before"}, {"reset": "after"}, {"hang": True}]
)
def test_a_retry_sends_the_same_bytes_and_the_same_id(hook: WebhookRig, fault: dict[str, Any]) -> None:
    hook.server.faults([fault, fault])
    timeout = "2s" if "hang" in fault else "60s"
    write(hook.sink({"webhook_client_timeout": timeout, "compression": "gzip"}), rows([1]))
    requests = hook.server.requests(hook.path)
    assert len(requests) == 3
    assert len({(request["body"], request["headers"]["idempotency-key"]) for request in requests}) == 1
    assert set(delivered(hook.server, hook.path)) == {1}


def test_the_wait_before_a_retry_doubles(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 500}] * 3)
    write(hook.sink(flush(retry={"Max": 3, "Backoff": "60ms"})), rows([1]))
    times = [request["at"] for request in hook.server.requests(hook.path)]
    waits = [later - earlier for earlier, later in pairwise(times)]
    for wait, least in zip(waits, (0.048, 0.096, 0.192), strict=True):
        assert wait >= least


@pytest.mark.parametrize(("status", "by_date"), [(429, False), (503, True)])
def test_all_requests_obey_retry_after(hook: WebhookRig, status: int, by_date: bool) -> None:
    date = int(time.time()) + 2
    value = formatdate(date, usegmt=True) if by_date else "1"
    hook.server.faults([{"status": status, "headers": {"retry-after": value}}])
    sink = hook.sink({"parallel_requests": 1})
    write(sink, rows([1, 2, 3]))
    times = [request["at"] for request in hook.server.requests(hook.path)]
    assert times[1] >= (date if by_date else times[0] + 0.9)
    assert delivered(hook.server, hook.path) == [1, 2, 3]


def test_a_long_retry_after_is_left_to_the_engine(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 503, "headers": {"retry-after": "3600"}, "text": "closed for today"}])
    error = error_of(lambda: write(hook.sink(), rows([1])))
    assert isinstance(error, RetryableSinkError)
    assert error.retry_after_s == 3600
    assert "503: closed for today" in str(error)
    assert len(hook.server.requests(hook.path)) == 1


@pytest.mark.parametrize("status", [404, 409])
def test_an_endpoint_that_says_when_to_retry_is_retried(hook: WebhookRig, status: int) -> None:
    hook.server.faults([{"status": status, "headers": {"retry-after": "120"}}])
    error = error_of(lambda: write(hook.sink(), rows([1])))
    assert isinstance(error, RetryableSinkError)
    assert error.retry_after_s == 120


def test_the_step_fails_after_the_last_retry(hook: WebhookRig) -> None:
    hook.server.faults(random=[{"share": 1, "status": 500, "text": "out\nof   order"}])
    sink = hook.sink()
    error = error_of(lambda: write(sink, rows([1])))
    assert isinstance(error, RetryableSinkError)
    assert str(error) == f"request to https://localhost:{hook.server.port} failed 4 times: response 500: out of order"
    assert len(hook.server.requests(hook.path)) == 4
    assert error_of(lambda: sink.emit(rows([2]))) is error


def test_retries_may_be_unlimited(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 500}] * 6)
    write(hook.sink(flush(retry={"Max": "inf", "Backoff": "0s"})), rows([1]))
    assert delivered(hook.server, hook.path) == [1]


@pytest.mark.parametrize("status", [301, 302, 401, 403, 404, 405, 407, 414, 415])
def test_a_setting_that_someone_must_change_fails_at_once(hook: WebhookRig, status: int) -> None:
    fault = {"share": 1, "status": status, "headers": {"location": hook.server.uri("/elsewhere")}}
    hook.server.faults(random=[fault])
    error = error_of(lambda: write(hook.sink(), rows([1])))
    assert isinstance(error, TerminalSinkError)
    assert error.repairable is (status not in (301, 414))
    assert f"failed: response {status}. " in str(error)
    assert len(hook.server.requests(hook.path)) == 1
    assert not hook.server.requests("/elsewhere")


def test_a_setting_is_tried_again_when_the_endpoint_says_when(hook: WebhookRig) -> None:
    hook.server.faults(
        [{"status": 404, "headers": {"retry-after": "0"}}, {"status": 403, "headers": {"retry-after": "0"}}]
    )
    write(hook.sink(), rows([1]))
    assert delivered(hook.server, hook.path) == [1]


def test_an_endpoint_that_is_gone_is_not_retried(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 410}])
    error = error_of(lambda: write(hook.sink(), rows([1])))
    assert isinstance(error, TerminalSinkError)
    assert not error.repairable
    assert len(hook.server.requests(hook.path)) == 1


@pytest.mark.parametrize("status", [400, 409, 413, 422])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_refused_rows_are_listed_and_all_others_delivered(hook: WebhookRig, status: int, compression: str) -> None:
    hook.server.faults(refused_keys={"[3]": status, "[17]": status, "[18]": status})
    sink = hook.sink({**flush(Messages=10, retry={"Max": 1, "Backoff": "10ms"}), "compression": compression})
    flushed = write(sink, rows(range(15)), rows(range(15, 25)))
    assert flushed.messages == 22
    assert flushed.refused == tuple(
        RefusedRow(index=number, reason=f"{status}: the key [{number}] is refused") for number in (3, 17, 18)
    )
    assert delivered(hook.server, hook.path) == [number for number in range(25) if number not in (3, 17, 18)]
    last = write(sink, rows([3, 30]).slice(1))
    assert (last.messages, last.refused) == (1, ())
    assert 30 in delivered(hook.server, hook.path)


def test_a_replayed_row_has_a_new_request_id_in_every_attempt(hook: WebhookRig) -> None:
    for epoch, replay in ((7, False), (8, True), (9, True)):
        sink = hook.sink(epoch=epoch)
        sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1), replay=replay))
        write(sink, rows([1]))
    requests = hook.server.requests(hook.path)
    assert len({request["headers"]["idempotency-key"] for request in requests}) == len(requests) == 3


def test_later_rows_of_a_key_wait_for_the_search_for_refused_rows(hook: WebhookRig) -> None:
    hook.server.faults(refused_keys={"[5]": 400}, slow_s=0.01)
    sink = hook.sink(flush(Messages=6))
    for version in range(5):
        sink.emit(rows([0, 1, 2, 3, 4, 5], wall=10 * version + 1))
    assert len(sink.flush().refused) == 5
    messages = [message for body in hook.server.bodies(hook.path) for message in json.loads(body)["payload"]]
    for key in range(5):
        assert [message["wall"] for message in messages if message["key"] == [key]] == [
            10 * version + 1 + key for version in range(5)
        ]
    assert not [request for request in hook.server.requests(hook.path) if request["shared"]]


def test_a_refused_mark_stops_the_changefeed(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 422, "text": "what is resolved?"}])
    error = error_of(lambda: hook.resolved_sink().emit_resolved(Timestamp(5)))
    assert isinstance(error, TerminalSinkError)
    assert not error.repairable
    assert "refuses a resolved mark: response 422: what is resolved?" in str(error)


def test_requests_run_in_parallel_and_never_share_a_key(hook: WebhookRig) -> None:
    hook.server.faults(random=[{"share": 0.1, "status": 500}, {"share": 0.1, "slow_s": 0.02}], slow_s=0.002)
    sink = hook.sink(flush(Messages=2, retry={"Max": 10, "Backoff": "5ms"}))
    versions: dict[int, list[int]] = {key: [] for key in range(9)}
    for number in range(60):
        keys = [number % 9, (number * 7 + 3) % 9, (number * 5) % 9]
        sink.emit(rows(keys, wall=10 * number + 1))
        for place, key in enumerate(keys):
            versions[key].append(10 * number + 1 + place)
    sink.flush()
    requests = hook.server.requests(hook.path)
    assert not [request["shared"] for request in requests if request["shared"]]
    assert max(request["in_flight"] for request in requests) > 1
    messages = [message for body in hook.server.bodies(hook.path) for message in json.loads(body)["payload"]]
    for key, walls in versions.items():
        assert [message["wall"] for message in messages if message["key"] == [key]] == walls


def test_as_many_requests_run_in_parallel_as_allowed(hook: WebhookRig) -> None:
    hook.server.faults(slow_s=0.02)
    write(hook.sink({"parallel_requests": 5}), rows(range(40)))
    assert max(request["in_flight"] for request in hook.server.requests(hook.path)) == 5


def test_an_unfinished_batch_is_sent_after_flush_frequency(hook: WebhookRig) -> None:
    sink = hook.sink(flush(Messages=100, Frequency="50ms"))
    sink.emit(rows([1, 2]))
    deadline = time.monotonic() + 120
    while not seen(hook.server, hook.path):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    sink.emit(rows([3]))
    assert sink.flush().messages == 3
    assert seen(hook.server, hook.path) == [[1, 2], [3]]


def test_secrets_in_an_answer_are_masked(hook: WebhookRig) -> None:
    fault = {"share": 1, "status": 500, "text": "bad token c2VjcmV0LXRva2Vu of a-secret-key at hush%2Fhush hush/hush"}
    hook.server.faults(random=[fault])
    options = {
        "webhook_auth_header": "Bearer c2VjcmV0LXRva2Vu",
        "extra_headers": '{"X-Key": "a-secret-key"}',
        "webhook_query": "code=hush%2Fhush",
    }
    text = str(error_of(lambda: write(hook.sink(options), rows([1]))))
    assert text.endswith("500: bad token *** of *** at *** ***")


def test_an_echoed_path_or_login_is_masked(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 410, "text": f"Cannot POST {hook.path} with Basic bWU6cHctb2YtbWU="}])
    uri = hook.server.uri(hook.path).replace("://", "://me:pw-of-me@")
    text = str(error_of(lambda: write(hook.sink(uri=uri), rows([1]))))
    assert "410: Cannot POST *** with ***." in text


def test_only_the_beginning_of_a_long_answer_is_shown(hook: WebhookRig) -> None:
    hook.server.faults([{"status": 400, "text": "no! " * 50_000}])
    (refused,) = write(hook.sink(), rows([1])).refused
    assert refused.reason.startswith("400: no! no!")
    assert len(refused.reason) < 250


def test_rows_after_a_failed_request_are_not_sent(hook: WebhookRig, caplog: pytest.LogCaptureFixture) -> None:
    hook.server.faults(random=[{"share": 1, "status": 410}])
    sink = hook.sink({"parallel_requests": 2})
    with suppress(TerminalSinkError):
        for number in range(40):
            sink.emit(rows(range(50), wall=100 * number + 1))
    assert isinstance(error_of(sink.flush), TerminalSinkError)
    sink.close()
    assert len(hook.server.requests(hook.path)) <= 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
