"""`check` finds configuration errors without sending a request."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cdc_sink_webhook.destination import WebhookDestination
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.webhook_rig import WebhookRig, context, encoder, flush, rows
from cdc_testing.webhook_server import WebhookServer

from cdc_core import (
    ConfigError,
    RetryableSinkError,
    SinkContext,
    SliceInfo,
    TerminalSinkError,
    Timestamp,
)
from cdc_core.plugins.host import PluginHost


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def client_of(server: WebhookServer) -> dict[str, str]:
    certificates = server.certificates
    return {"client_cert": encoded(certificates.client_cert), "client_key": encoded(certificates.client_key)}


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """An endpoint that requires client certificates."""
    with WebhookServer(tmp_path_factory.mktemp("strict"), demand_client=True) as server:
        yield server


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with WebhookServer(tmp_path_factory.mktemp("plain"), tls=False) as server:
        yield server


def refusal(context: SinkContext) -> str:
    """Return the error of `check` for *context*."""
    with pytest.raises(ConfigError) as raised:
        WebhookDestination(context).check()
    assert raised.value.exit_status == 2
    assert raised.value.repairable is not any(word in str(raised.value) for word in ("option", "format", "would send"))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_check_sends_no_request(hook: WebhookRig) -> None:
    WebhookDestination(context(hook.server.uri(hook.path), hook.server.trust)).check()
    assert not hook.server.requests(hook.path)


def test_certificates_may_be_pem_text(hook: WebhookRig) -> None:
    WebhookDestination(context(hook.server.uri(), {"ca_cert": hook.server.certificates.ca.read_text()})).check()


def test_an_unknown_authority_is_not_trusted(hook: WebhookRig) -> None:
    text = refusal(context(hook.server.uri(), {}))
    assert text.startswith(f"the certificate of https://localhost:{hook.server.port} is not trusted (")
    assert text.endswith("). Set ca_cert, or correct the host of the sink URI")
    text = refusal(context(hook.server.uri(), {"ca_cert": encoded(hook.server.certificates.stranger_ca)}))
    assert "is not trusted" in text


def test_a_certificate_for_another_host_is_not_trusted(hook: WebhookRig) -> None:
    uri = hook.server.uri().replace("localhost", "0.0.0.0")
    assert "IP address mismatch" in refusal(context(uri, hook.server.trust))


def test_an_option_accepts_any_certificate(hook: WebhookRig) -> None:
    WebhookDestination(context(hook.server.uri(), {"insecure_tls_skip_verify": "true"})).check()


def test_a_client_certificate_is_sent(hook: WebhookRig, strict_server: WebhookServer) -> None:
    sink = hook.sink(client_of(strict_server), at=strict_server)
    WebhookDestination(sink.context).check()
    sink.emit(rows([1]))
    assert sink.flush().messages == len(strict_server.bodies(hook.path)) == 1


def test_a_missing_client_certificate_is_reported(hook: WebhookRig, strict_server: WebhookServer) -> None:
    text = refusal(context(strict_server.uri(), strict_server.trust))
    assert text.endswith(". Set client_cert and client_key")
    text = refusal(context(strict_server.uri(), {**strict_server.trust, **client_of(hook.server)}))
    assert text.endswith(". Set another client_cert and client_key")


@pytest.fixture
def alerting_port(hook: WebhookRig) -> Iterator[int]:
    """The port of an endpoint that answers a missing client certificate with an alert."""
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(hook.server.certificates.server_cert, hook.server.certificates.server_key)
    secured.load_verify_locations(hook.server.certificates.ca)
    secured.verify_mode = ssl.CERT_REQUIRED

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listening.accept()[0]
                with suppress(OSError), connection.dup() as unsecured:
                    with suppress(ssl.SSLError), secured.wrap_socket(connection, server_side=True):
                        pass
                    unsecured.shutdown(socket.SHUT_WR)
                    while unsecured.recv(65_536):  # a close with unread bytes would reset the connection
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_tls_alert_about_the_client_certificate_is_reported(hook: WebhookRig, alerting_port: int) -> None:
    text = refusal(context(f"webhook-https://localhost:{alerting_port}", hook.server.trust))
    assert text.endswith("certificate required). Set client_cert and client_key")


def test_in_a_run_a_certificate_that_is_not_accepted_may_be_repaired(hook: WebhookRig, alerting_port: int) -> None:
    for uri, options in ((hook.server.uri(), {}), (f"webhook-https://localhost:{alerting_port}", hook.server.trust)):
        sink = WebhookSink(context(uri, options))
        sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
        sink.emit(rows([1]))
        with pytest.raises(TerminalSinkError, match=r"(?i)failed: .*certificate.*\. Check the certificate") as failed:
            sink.flush()
        sink.close()
        assert failed.value.repairable


def test_a_server_without_tls_is_reported(plain_server: WebhookServer) -> None:
    text = refusal(context(plain_server.uri().replace("http:", "https:"), {}))
    assert text.endswith(". Correct the port of the sink URI: the server there does not speak TLS")


def test_plain_http_works_on_this_machine(plain_server: WebhookServer) -> None:
    path = plain_server.new_path()
    WebhookDestination(context(plain_server.uri(path), {})).check()
    sink = WebhookSink(context(plain_server.uri(path), {}))
    sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
    sink.emit(rows([1]))
    assert sink.flush().messages == 1
    sink.close()
    assert plain_server.requests(path)[0]["http"] == "1.1"


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("webhook-https://127.0.0.1:9/x", "cannot connect to https://127.0.0.1:9 (Connection refused). "),
        ("webhook-https://no-such-host.invalid/x", "the host of https://no-such-host.invalid:443 has no address. "),
        ("webhook-http://example.com/x", "sink 'webhook': webhook-http:// to 'example.com' would send"),
    ],
)
def test_an_unreachable_endpoint_is_named(uri: str, sentence: str) -> None:
    assert refusal(context(uri, {})).startswith(sentence)


def test_a_silent_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_sink_webhook.reachability._LIMIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert f"https://127.0.0.1:{port} did not answer within 0.1 s" in refusal(
            context(f"webhook-https://127.0.0.1:{port}/x", {})
        )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"ca_cert": "hush"}, "nor base64-encoded PEM. To read a file, write ${file:/path}"),
        ({"ca_cert": ""}, "'ca_cert' is neither PEM text nor"),
        ({"client_cert": "", "client_key": ""}, "'client_cert' is neither PEM text nor"),
        ({"ca_cert": "aHVzaA=="}, "'ca_cert' is neither PEM text nor"),
        ({"ca_cert": "-----BEGIN hush"}, "'ca_cert' does not contain a readable certificate"),
        ({"client_cert": "hush"}, "'client_cert' and 'client_key' must be set together"),
        ({"client_key": "hush"}, "'client_cert' and 'client_key' must be set together"),
        (
            {"client_cert": "-----BEGIN hush", "client_key": "-----BEGIN hush"},
            "'client_cert' and 'client_key' must contain a certificate and its unencrypted key",
        ),
        ({"webhook_signing_secret": "hush"}, "'webhook_signing_secret' must be whsec_"),
    ],
)
def test_invalid_secrets_are_refused_and_not_shown(hook: WebhookRig, values: dict[str, Any], sentence: str) -> None:
    text = refusal(context(hook.server.uri(), values))
    assert sentence in text
    assert "hush" not in text


@pytest.mark.parametrize("name", ["ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify"])
def test_tls_options_require_a_tls_uri(plain_server: WebhookServer, name: str) -> None:
    assert f"'{name}' requires a webhook-https:// URI" in refusal(context(plain_server.uri(), {name: "true"}))


def test_messages_must_be_json_or_csv(hook: WebhookRig) -> None:
    avro = encoder()
    avro.file_extension = ".avro"
    assert "Choose format json or csv" in refusal(context(hook.server.uri(), hook.server.trust, encoder=avro))


def test_in_a_run_a_host_without_an_address_is_retried(hook: WebhookRig) -> None:
    sink = hook.sink(flush(retry={"Max": 1, "Backoff": "1ms"}), uri="webhook-https://no-such-host.invalid/x")
    sink.emit(rows([1]))
    with pytest.raises(RetryableSinkError, match=r"failed 2 times: cannot connect \("):
        sink.flush()


def test_the_url_of_an_endpoint_suggests_the_scheme_of_the_sink() -> None:
    with pytest.raises(ConfigError, match="'https://'; did you mean 'webhook-https'"):
        PluginHost.load().sink_for("https://example.com/hook")
