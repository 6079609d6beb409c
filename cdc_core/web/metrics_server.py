"""The endpoint /metrics of a process."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from cdc_core.errors import ConfigError
from cdc_core.telemetry.metrics import Sample
from cdc_core.web.address import Address
from cdc_core.web.exposition import registry_of

log = logging.getLogger(__name__)

_Start = Callable[..., Any]


class MetricsServer(AbstractContextManager["MetricsServer"]):
    """Serves what *collect* returns at `http://ADDRESS/metrics` until it is closed. *collect* is called in any thread.

    It answers GET and nothing else, and only requests that name it as it was told to listen (`Address.answers_to`).
    Raises: ConfigError when it cannot listen there.
    """

    def __init__(self, address: Address, collect: Callable[[], Iterable[Sample]]) -> None:
        self._address = address
        self._metrics = make_wsgi_app(registry_of(collect))
        server = _V6Server if ":" in address.host else _Server
        try:
            self._server = make_server(address.host, address.port, self._answer, server, _QuietHandler)
        except OSError as error:
            raise ConfigError(
                f"--metrics {address}: this process cannot listen there: {error.strerror or error}; choose another"
                " address with --metrics=HOST:PORT"
            ) from error
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}/metrics"

    def close(self) -> None:
        """Stop listening. Return when no further request is answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, request: dict[str, Any], start: _Start) -> Iterable[bytes]:
        host = request.get("HTTP_HOST", "")
        if not self._address.answers_to(host):
            return _refuse(start, "421 Misdirected Request", f"this server does not answer to the name {host!r}")
        if request["PATH_INFO"] != "/metrics":
            return _refuse(start, "404 Not Found", "the metrics are at /metrics")
        answer: Iterable[bytes] = self._metrics(request, start)
        return answer


class _Server(ThreadingWSGIServer):
    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log why a connection ended without an answer: it was idle for too long, or its client reset it."""
        log.debug("closed the connection of %s", client_address, exc_info=True)


class _V6Server(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = 30.0
    """Seconds after which a connection that sends nothing is closed."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a scrape is not an event."""


def _refuse(start: _Start, status: str, reason: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{reason}\n".encode()]
