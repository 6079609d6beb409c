"""The conformance suite with a real HTTPS endpoint, which is paused and killed and refuses rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_testing.disturbance import ServerDisturbance
from cdc_testing.webhook_server import WebhookReader, WebhookServer

from cdc_core import MB

_FLUSH = '"Flush": {"Messages": 4, "Bytes": 500000, "Frequency": "50ms"}'


class EndpointDisturbance(ServerDisturbance):
    """Faults of the endpoint."""

    def __init__(self, server: WebhookServer) -> None:
        super().__init__(server)
        self._endpoint = server

    @contextmanager
    def refusing(self, keys: Collection[bytes]) -> Iterator[None]:
        """The endpoint answers 400 to every request with one of the keys."""
        with self._endpoint.failing(refused_keys={key.decode(): 400 for key in keys}):
            yield


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """An endpoint that tests of this module may break, if they repair it afterwards."""
    with WebhookServer(tmp_path_factory.mktemp("own"), max_bytes=MB, deduplicates=True) as server:
        yield server


class TestWebhook(SinkConformance):
    """JSON in batches of four."""

    sink = "webhook"
    capabilities = frozenset(
        {"disturbance", "stall", "refusal", "partial_failure", "row_limit", "idempotent", "unreachable"}
    )

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
    def disturbance(self, own_server: WebhookServer) -> EndpointDisturbance:
        return EndpointDisturbance(own_server)

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "webhook-https://127.0.0.1:9/hook"

    @pytest.fixture
    def row_limit_bytes(self) -> int:
        return MB

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """`buffer_size` of requests, one batch of rows with its encoded messages, and the memory of the client."""
        return 16 * MB
