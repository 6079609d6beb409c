"""What `check` finds out, without a request."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.webhook_server import WebhookServer

from cdc_core import CdcError, ConfigError, Encoder, RetryableSinkError, RowBatch, SinkContext, SliceInfo, Timestamp

Context = Callable[..., SinkContext]


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def client_of(server: WebhookServer) -> dict[str, str]:
    certificates = server.certificates
    return {"client_cert": encoded(certificates.client_cert), "client_key": encoded(certificates.client_key)}


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """An endpoint that wants a certificate of its clients."""
    with WebhookServer(tmp_path_factory.mktemp("strict"), demand_client=True) as server:
        yield server


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with WebhookServer(tmp_path_factory.mktemp("plain"), tls=False) as server:
        yield server


def refusal(context: SinkContext) -> str:
    """Return why `check` refuses a sink of *context*."""
    sink = WebhookSink(context)
    with pytest.raises(ConfigError) as raised:
        sink.check()
    assert raised.value.exit_status == 2
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_endpoint_that_can_be_used_sees_no_request(context: Context, server: WebhookServer, path: str) -> None:
    WebhookSink(context(server.uri(path), server.trust)).check()
    assert not server.requests(path)


def test_certificates_may_be_plain_text(context: Context, server: WebhookServer) -> None:
    WebhookSink(context(server.uri(), {"ca_cert": server.certificates.ca.read_text()})).check()


def test_a_certificate_is_not_trusted_by_itself(context: Context, server: WebhookServer) -> None:
    text = refusal(context(server.uri(), {}))
    assert text.startswith(f"the certificate of https://localhost:{server.port} is not to be trusted (")
    assert text.endswith("): give ca_cert, or correct the host of the sink's URI")
    text = refusal(context(server.uri(), {"ca_cert": encoded(server.certificates.stranger_ca)}))
    assert "is not to be trusted" in text


def test_a_certificate_for_another_host_is_not_trusted(context: Context, server: WebhookServer) -> None:
    uri = server.uri().replace("localhost", "0.0.0.0")
    assert "IP address mismatch" in refusal(context(uri, server.trust))


def test_any_certificate_will_do_if_one_says_so(context: Context, server: WebhookServer) -> None:
    WebhookSink(context(server.uri(), {"insecure_tls_skip_verify": "true"})).check()


def test_a_client_proves_who_it_is(
    context: Context, strict_server: WebhookServer, rows: Callable[..., RowBatch]
) -> None:
    options = {**strict_server.trust, **client_of(strict_server)}
    path = strict_server.new_path()
    sink = WebhookSink(context(strict_server.uri(path), options))
    sink.check()
    sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    sink.close()
    assert len(strict_server.bodies(path)) == 1


def test_a_client_that_does_not_prove_who_it_is_hears_of_it(
    context: Context, strict_server: WebhookServer, server: WebhookServer
) -> None:
    text = refusal(context(strict_server.uri(), strict_server.trust))
    assert text.endswith(": give client_cert and client_key")
    text = refusal(context(strict_server.uri(), {**strict_server.trust, **client_of(server)}))
    assert text.endswith(": give another client_cert and client_key")


def test_an_endpoint_may_say_that_it_wants_a_certificate(context: Context, server: WebhookServer) -> None:
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(server.certificates.server_cert, server.certificates.server_key)
    secured.load_verify_locations(server.certificates.ca)
    secured.verify_mode = ssl.CERT_REQUIRED

    def refuse(listening: socket.socket) -> None:
        with suppress(ssl.SSLError), secured.wrap_socket(listening.accept()[0], server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=refuse, args=(listening,), daemon=True).start()
        text = refusal(context(f"webhook-https://localhost:{listening.getsockname()[1]}", server.trust))
    assert text.endswith("certificate required): give client_cert and client_key")


def test_something_else_than_tls_is_not_taken_for_it(context: Context, plain_server: WebhookServer) -> None:
    text = refusal(context(plain_server.uri().replace("http:", "https:"), {}))
    assert text.endswith(": correct the port of the sink's URI, where something else than TLS is spoken")


def test_plain_http_does_on_this_machine(
    context: Context, plain_server: WebhookServer, rows: Callable[..., RowBatch]
) -> None:
    path = plain_server.new_path()
    sink = WebhookSink(context(plain_server.uri(path), {}))
    sink.check()
    sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    sink.close()
    assert plain_server.requests(path)[0]["http"] == "1.1"


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("webhook-https://127.0.0.1:9/x", "https://127.0.0.1:9 takes no connections (Connection refused): "),
        ("webhook-https://no-such-host.invalid/x", "the host of https://no-such-host.invalid:443 has no address: "),
        ("webhook-http://example.com/x", "sink 'webhook' sends to 'example.com' by webhook-https only"),
    ],
)
def test_an_endpoint_that_is_not_there_is_named(context: Context, uri: str, sentence: str) -> None:
    assert refusal(context(uri, {})).startswith(sentence)


def test_an_endpoint_that_says_nothing_is_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_sink_webhook.reaching._LIMIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert f"https://127.0.0.1:{port} does not answer in 0.1 s" in refusal(
            context(f"webhook-https://127.0.0.1:{port}/x", {})
        )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"ca_cert": "hush"}, "'ca_cert' is not base64 of PEM text"),
        ({"ca_cert": ""}, "'ca_cert' does not hold PEM text"),
        ({"client_cert": "", "client_key": ""}, "'client_cert' does not hold PEM text"),
        ({"ca_cert": "aHVzaA=="}, "'ca_cert' does not hold PEM text"),
        ({"ca_cert": "-----BEGIN hush"}, "'ca_cert' holds no certificate that can be read"),
        ({"client_cert": "hush"}, "'client_cert' and 'client_key' need each other"),
        ({"client_key": "hush"}, "'client_cert' and 'client_key' need each other"),
        (
            {"client_cert": "-----BEGIN hush", "client_key": "-----BEGIN hush"},
            "'client_cert' and 'client_key' hold no certificate with its unencrypted key",
        ),
        ({"webhook_signing_secret": "hush"}, "'webhook_signing_secret' holds something else"),
    ],
)
def test_wrong_secrets_are_refused_unseen(
    context: Context, server: WebhookServer, values: dict[str, Any], sentence: str
) -> None:
    text = refusal(context(server.uri(), values))
    assert sentence in text
    assert "hush" not in text


@pytest.mark.parametrize("name", ["ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify"])
def test_without_tls_its_options_mean_nothing(context: Context, plain_server: WebhookServer, name: str) -> None:
    assert f"'{name}' needs a webhook-https:// URI" in refusal(context(plain_server.uri(), {name: "true"}))


def test_messages_must_be_json_or_csv(context: Context, server: WebhookServer, encoder: Encoder) -> None:
    encoder.file_extension = ".avro"
    assert "choose the format json or csv" in refusal(context(server.uri(), server.trust, encoder=encoder))


def test_a_host_without_an_address_is_worth_a_retry_in_a_run(
    context: Context, rows: Callable[..., RowBatch], flush: Callable[..., dict[str, Any]]
) -> None:
    options = flush(retry={"Max": 1, "Backoff": "1ms"})
    sink = WebhookSink(context("webhook-https://no-such-host.invalid/x", options))
    sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
    sink.emit(rows([1]))
    with pytest.raises(CdcError) as raised:
        sink.flush()
    sink.close()
    assert isinstance(raised.value, RetryableSinkError)
    assert "no connection was made" in str(raised.value)
