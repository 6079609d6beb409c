"""Brokers for tests of the Kafka sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.kafka_fixtures import QUICK_RETURN, Kafka
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.runs import eventually


@pytest.fixture
def kafka(kafka_broker: Kafka, topic_prefix: str) -> Iterator[KafkaRig]:
    """The sink at the session's broker. `kafka.at(address)` is at another one."""
    with ExitStack() as opened:
        yield KafkaRig(kafka_broker.bootstrap_servers, topic_prefix, opened)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait three seconds for each answer of a broker that refuses the connection, not ten or fifteen."""
    for module in ("admin", "partitions"):
        monkeypatch.setattr(f"cdc_sink_kafka.{module}._LIMIT_S", 3.0)


@pytest.fixture(scope="session")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker of this process that tests may kill and pause, and must leave running."""
    with KafkaBroker(settings=QUICK_RETURN) as broker:
        yield broker


@pytest.fixture
def own_kafka(kafka: KafkaRig, own_broker: KafkaBroker) -> KafkaRig:
    """The sink at `own_broker`, which the test before may have paused."""
    eventually("the broker to answer", own_broker.answers)
    return kafka.at(own_broker.bootstrap_servers)
