"""Fixtures of real brokers and registries: started here, or external ones that the environment names.

A test whose server cannot start fails. It is never skipped.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

import pytest
from cdc_sink_kafka.demo.servers import Certificates, make_certificates
from cdc_testing.shared_servers import KAFKA_PASSWORD, KAFKA_USER, SERVERS, SecuredKafka


class RegistryProxy:
    """Passes requests on to the registry at *url*, from entering to leaving.

    With *user* and *password* it answers 401 to everybody else. With *certificates* it speaks TLS, and can demand a
    certificate that their authority signed. `requests` lists what was asked, as "GET /subjects". While `failure` is a
    status code it answers that; while `odd` is a status and a body it answers these, and with `cut` it ends the
    connection before the body does. It answers like Redpanda to a path that contains `unknown`, and refuses requests to
    register a schema while `unwritable` is set. While `silent` is set it takes requests and does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        certificates: Certificates | None = None,
        demand_client_certificate: bool = False,
    ) -> None:
        self.requests: list[str] = []
        self.failure: int | None = None
        self.odd: tuple[int, bytes] | None = None
        self.cut = False
        self.unknown: str | None = None
        self.unwritable = False
        self._answering = threading.Event()
        self._answering.set()
        self.behind = urlsplit(url)
        self.authorization = None if user is None else _basic(user, password or "")
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._scheme = "http"
        if certificates is not None:
            self._scheme = "https"
            self._server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._server.tls.load_cert_chain(certificates.server_cert, certificates.server_key)
            if demand_client_certificate:
                self._server.tls.verify_mode = ssl.CERT_REQUIRED
                self._server.tls.load_verify_locations(certificates.ca)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """What clients take as the registry's address."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}{self.behind.path}"

    @property
    def silent(self) -> bool:
        """Whether requests are taken and not answered."""
        return not self._answering.is_set()

    @silent.setter
    def silent(self, value: bool) -> None:
        if value:
            self._answering.clear()
        else:
            self._answering.set()

    def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """Return status, content type and body for a request. Called by threads of the server."""
        self.requests.append(f"{method} {path.removeprefix(self.behind.path)}")
        self._answering.wait()
        if self.odd is not None:
            return self.odd[0], _JSON, self.odd[1]
        if self.failure is not None:
            return self.failure, _JSON, b'{"error_code": %d, "message": "the proxy was told to fail"}' % self.failure
        if self.unknown is not None and self.unknown in path:
            return 404, _JSON, b'{"message": "Not found", "code": 404}'
        if self.unwritable and method == "POST" and "/compatibility/" not in path and path.endswith("/versions"):
            return 403, _JSON, b'{"error_code": 40301, "message": "User is denied operation Write"}'
        if self.authorization is not None and headers.get("authorization") != self.authorization:
            return 401, _JSON, b'{"error_code": 401, "message": "Unauthorized"}'
        assert self.behind.hostname is not None
        connection = http.client.HTTPConnection(self.behind.hostname, self.behind.port, timeout=30)
        try:
            passed = {name: value for name, value in headers.items() if name in ("content-type", "accept")}
            connection.request(method, path, body=body or None, headers=passed)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", _JSON), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: RegistryProxy
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the request's own thread, so that a client that fails does not hold up the others."""
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        try:
            wrapped = self.tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        with wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that go away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, kind, answer = self.server.proxy.answer(self.command, self.path, body, headers)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer) + self.server.proxy.cut))
        self.close_connection = self.server.proxy.cut
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""


_JSON = "application/vnd.schemaregistry.v1+json"


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


__all__ = ["KAFKA_PASSWORD", "KAFKA_USER", "QUICK_RETURN", "Kafka", "ProxyFactory", "Registry"]

QUICK_RETURN = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""With these settings a killed broker can rejoin two seconds sooner. Do not use them for several brokers: they would
lose contact with each other."""


class Kafka(Protocol):
    """A broker, as clients see it."""

    @property
    def bootstrap_servers(self) -> str: ...


class Registry(Protocol):
    """A schema registry, as clients see it."""

    @property
    def url(self) -> str: ...


class ProxyFactory(Protocol):
    """Starts a proxy of the session's registry that ends with the test."""

    def __call__(
        self,
        *,
        user: str | None = None,
        password: str | None = None,
        certificates: Certificates | None = None,
        demand_client_certificate: bool = False,
    ) -> RegistryProxy: ...


@dataclass(frozen=True, slots=True)
class _SharedKafka:
    bootstrap_servers: str


@dataclass(frozen=True, slots=True)
class _SharedRegistry:
    url: str


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Kafka:
    """The broker of the whole run: KAFKA_BOOTSTRAP_SERVERS if that is set. Use `topic_prefix` for topics.

    Tests that kill or pause a broker start their own.
    """
    return _SharedKafka(os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or pytestconfig.stash[SERVERS].kafka())


@pytest.fixture(scope="session")
def schema_registry(pytestconfig: pytest.Config) -> Registry:
    """The registry of the whole run: SCHEMA_REGISTRY_URL if that is set. Use `topic_prefix` for subjects, too."""
    return _SharedRegistry(os.environ.get("SCHEMA_REGISTRY_URL") or pytestconfig.stash[SERVERS].registry())


@pytest.fixture
def set_compatibility(schema_registry: Registry) -> Callable[[str, str], None]:
    """Sets the compatibility of a subject: `set_compatibility(subject, "FULL")`."""

    def set_to(subject: str, level: str) -> None:
        request = urllib.request.Request(
            f"{schema_registry.url}/config/{quote(subject, safe='')}",
            data=json.dumps({"compatibility": level}).encode(),
            method="PUT",
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    return set_to


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics and subjects that no other test uses, on any server."""
    return f"t{secrets.token_hex(5)}_"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of a test authority, for servers on loopback and for a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secured_broker(pytestconfig: pytest.Config) -> SecuredKafka:
    """A broker with all listeners, for the whole run: `secured_broker.address("SASL_SSL")`.

    KAFKA_USER can log in with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and everybody with an unsigned token through
    SASL_PLAINTEXT. The broker uses and demands `secured_broker.certificates`. Its PLAINTEXT listener is for reading
    what arrived, as the user ANONYMOUS, whom tests may deny rights on their topics.
    """
    return pytestconfig.stash[SERVERS].secured_kafka()


@pytest.fixture
def registry_proxy(schema_registry: Registry) -> Iterator[ProxyFactory]:
    """Starts proxies for the session's registry that demand a password, TLS or a client certificate, or that fail."""
    with ExitStack() as stack:

        def proxy(
            *,
            user: str | None = None,
            password: str | None = None,
            certificates: Certificates | None = None,
            demand_client_certificate: bool = False,
        ) -> RegistryProxy:
            return stack.enter_context(
                RegistryProxy(
                    schema_registry.url,
                    user=user,
                    password=password,
                    certificates=certificates,
                    demand_client_certificate=demand_client_certificate,
                )
            )

        yield proxy
