"""OAUTHBEARER: an identity provider issues tokens for the id and the secret of a client."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows
from cdc_testing.shared_servers import SecuredKafka

from cdc_core import CdcError, ConfigError, RetryableSinkError, TerminalSinkError

QUICK = {"create_kafka_topics": "off", "flush_timeout": "3s"}
SECRET = "a secret + of many / characters"


class IdentityProvider(HTTPServer):
    """Issues unsigned tokens for the right secret."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        credentials = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append((credentials, body))
        known = credentials == f"client:{SECRET}"
        now = int(time.time())
        token = ".".join(
            (_part({"alg": "none"}), _part({"sub": "client", "iat": now, "exp": now + 3600, "scope": "write"}), "")
        )
        answer = {"access_token": token, "expires_in": 3600} if known else {"error": "invalid_client"}
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002
        pass


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def options(provider: IdentityProvider, secret: str = SECRET) -> dict[str, Any]:
    return {
        "sasl_enabled": True,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_client_id": "client",
        "sasl_client_secret": base64.b64encode(secret.encode()).decode(),
        "sasl_token_url": provider.url,
        "sasl_scopes": "write,describe",
    }


def test_rows_arrive_with_a_token(secured_broker: SecuredKafka, provider: IdentityProvider, kafka: KafkaRig) -> None:
    kafka.at(secured_broker.address("SASL_PLAINTEXT")).destination(options(provider)).check()
    sink = kafka.at(secured_broker.address("SASL_PLAINTEXT")).sink(options(provider))
    sink.emit(rows(range(10)))
    assert sink.flush().messages == 10
    assert {credentials for credentials, _ in provider.asked} == {f"client:{SECRET}"}
    assert "scope=write+describe" in provider.asked[0][1].replace("%20", "+").replace(" ", "+")


def test_the_check_reports_a_wrong_client_secret(
    secured_broker: SecuredKafka, provider: IdentityProvider, kafka: KafkaRig
) -> None:
    with pytest.raises(ConfigError) as refused:
        kafka.at(secured_broker.address("SASL_PLAINTEXT")).destination(options(provider, "wrong-secret")).check()
    text = str(refused.value)
    assert "token" in text
    assert text.endswith("check the sasl options")
    assert "wrong-secret" not in text
    assert "\n" not in text


def failure(kafka: KafkaRig, broker: str, given: dict[str, Any]) -> CdcError:
    """Return what the sink makes of tokens that it cannot get. On a busy machine it hears of that too late at first."""
    while True:
        sink = kafka.at(broker).sink(given)
        sink.emit(rows([1]))
        with pytest.raises((TerminalSinkError, RetryableSinkError)) as failed:
            sink.flush()
        if "token" in str(failed.value):
            return failed.value


@pytest.mark.usefixtures("short_waits")
def test_a_client_secret_that_was_rotated_may_be_repaired(
    secured_broker: SecuredKafka, provider: IdentityProvider, kafka: KafkaRig
) -> None:
    given = {**options(provider, "wrong-secret"), **QUICK}
    refused = failure(kafka, secured_broker.address("SASL_PLAINTEXT"), given)
    assert isinstance(refused, TerminalSinkError)
    assert refused.repairable


@pytest.mark.usefixtures("short_waits")
def test_a_provider_of_tokens_that_is_out_of_reach_is_an_outage(
    secured_broker: SecuredKafka, provider: IdentityProvider, kafka: KafkaRig
) -> None:
    given = {**options(provider), **QUICK, "sasl_token_url": "http://127.0.0.1:9/token"}
    failed = failure(kafka, secured_broker.address("SASL_PLAINTEXT"), given)
    assert isinstance(failed, RetryableSinkError)
    assert failed.outage
