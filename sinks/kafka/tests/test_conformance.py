"""The Kafka sink keeps the promises of a sink, with a real broker that is paused and killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.disturbance import ServerDisturbance

from cdc_core import MB


@pytest.mark.slow
class TestKafka(SinkConformance):
    """JSON messages in topics of three partitions."""

    sink = "kafka"
    capabilities = frozenset({"disturbance", "stall", "row_limit", "unreachable"})

    @pytest.fixture(autouse=True)
    def short_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tests treat a broker that does not answer within two seconds as down."""
        for module in ("admin", "partitions"):
            monkeypatch.setattr(f"cdc_sink_kafka.{module}._LIMIT_S", 2.0)
        monkeypatch.setattr("cdc_sink_kafka.admin._CHECK_LIMIT_S", 2.0)

    @pytest.fixture
    def sink_uri(self, own_broker: KafkaBroker) -> str:
        return f"kafka://{own_broker.bootstrap_servers}"

    @pytest.fixture
    def sink_options(self, topic_prefix: str) -> Mapping[str, Any]:
        return {"topic_prefix": topic_prefix, "topic_partitions": 3, "flush_timeout": "3s", "buffer_size": "3MB"}

    @pytest.fixture
    def disturbance(self, own_broker: KafkaBroker) -> ServerDisturbance:
        return ServerDisturbance(own_broker)

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "kafka://127.0.0.1:9"

    @pytest.fixture
    def secret_options(self) -> Sequence[Mapping[str, str]]:
        """Complete sets of options: others are refused before any connection."""
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
        """More than the default limit of a topic and less than that of the client: the broker refuses it."""
        return 2 * MB

    @pytest.fixture
    def memory_bound_bytes(self) -> int:
        """`buffer_size` of values, as much of keys, a batch of rows, and the overhead of librdkafka and Python."""
        return 16 * MB
