"""The Kafka sink keeps the promises of a sink, at a real broker that is paused and killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_sink_kafka.demo.servers import KafkaBroker

from cdc_core.options import MB


class BrokerDisturbance:
    """What can happen to a broker."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The broker was killed; afterwards another process answers at its address, with what was on disk."""
        self._broker.kill()
        try:
            yield
        finally:
            self._broker.start()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The broker keeps its connections and answers nothing."""
        self._broker.pause()
        try:
            yield
        finally:
            self._broker.resume()


class TestKafka(SinkConformance):
    """JSON messages in topics of three partitions."""

    sink = "kafka"

    @pytest.fixture(autouse=True)
    def short_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A broker that does not answer in a second is down: that much patience tests have."""
        for module in ("admin", "partitions"):
            monkeypatch.setattr(f"cdc_sink_kafka.{module}._LIMIT_S", 1.0)
        monkeypatch.setattr("cdc_sink_kafka.admin._CHECK_LIMIT_S", 1.0)

    @pytest.fixture
    def sink_uri(self, own_broker: KafkaBroker) -> str:
        return f"kafka://{own_broker.bootstrap_servers}"

    @pytest.fixture
    def sink_options(self, topic_prefix: str) -> Mapping[str, Any]:
        return {
            "topic_prefix": topic_prefix,
            "topic_partitions": 3,
            "flush_timeout": "2s",
            "buffer_size": "3MB",
        }

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return {"disturbance", "stall", "row_limit", "unreachable"}

    @pytest.fixture
    def disturbance(self, own_broker: KafkaBroker) -> BrokerDisturbance:
        return BrokerDisturbance(own_broker)

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "kafka://127.0.0.1:9"

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """Passwords that are really used: others are refused before anything is connected to."""
        login = {"sasl_enabled": "true", "sasl_user": "alice", "sasl_password": "{secret}"}
        token = {"sasl_client_id": "id", "sasl_client_secret": "{secret}", "sasl_token_url": "http://127.0.0.1:9/token"}
        return [
            {**login, "sasl_mechanism": "scram-sha-256"},
            {"sasl_enabled": "true", "sasl_mechanism": "oauthbearer", **token},
            {"tls_enabled": "true", "client_key": "{secret}", "client_cert": "none"},
            {"librdkafka.ssl.key.password": "{secret}"},
        ]

    @pytest.fixture
    def row_limit_bytes(self) -> int:
        """More than a topic takes by default, and less than the client does: it is the broker that refuses it."""
        return 2 * MB

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """`buffer_size` of values, as much of keys, a batch of rows, and what librdkafka and Python need for them."""
        return 16 * MB
