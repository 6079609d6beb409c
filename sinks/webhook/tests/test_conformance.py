"""The webhook sink keeps the promises of a sink, at a real HTTPS endpoint that is paused, killed and refuses rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_testing.webhook_server import WebhookReader, WebhookServer

from cdc_core.options import MB

_FLUSH = '"Flush": {"Messages": 4, "Bytes": 500000, "Frequency": "50ms"}'


class ServerDisturbance:
    """What can happen to an endpoint."""

    def __init__(self, server: WebhookServer) -> None:
        self._server = server

    @contextmanager
    def broken(self) -> Iterator[None]:
        """It was killed; afterwards another process answers at its address."""
        self._server.kill()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """It keeps its connections and answers nothing."""
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()

    @contextmanager
    def refusing(self, keys: Collection[bytes]) -> Iterator[None]:
        """It answers 400 to every request that has one of the keys."""
        with self._server.failing(refused_keys={key.decode(): 400 for key in keys}):
            yield


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """An endpoint that tests of this module may harm, if they leave it well."""
    with WebhookServer(tmp_path_factory.mktemp("own"), most_bytes=MB, remembers=True) as server:
        yield server


class TestWebhook(SinkConformance):
    """JSON in batches of four."""

    sink = "webhook"

    @pytest.fixture
    def sink_uri(self, own_server: WebhookServer) -> str:
        return own_server.uri(own_server.new_path())

    @pytest.fixture
    def sink_options(self, own_server: WebhookServer) -> Mapping[str, Any]:
        return {
            **own_server.trust,
            "webhook_client_timeout": "1s",
            "webhook_sink_config": f'{{{_FLUSH}, "Retry": {{"Max": 2, "Backoff": "50ms"}}}}',
            "buffer_size": "1MB",
            "updated": True,
        }

    @pytest.fixture
    def read_back(self, own_server: WebhookServer) -> Any:
        return partial(WebhookReader, server=own_server)

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return {"disturbance", "stall", "refusal", "partial_failure", "row_limit", "idempotent", "unreachable"}

    @pytest.fixture
    def disturbance(self, own_server: WebhookServer) -> ServerDisturbance:
        return ServerDisturbance(own_server)

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "webhook-https://127.0.0.1:9/hook"

    @pytest.fixture
    def row_limit_bytes(self) -> int:
        return MB

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """`buffer_size` of requests, a batch of rows and its encoded messages, and what the client needs for them."""
        return 16 * MB
