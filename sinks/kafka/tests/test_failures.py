from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from cdc_sink_kafka.client_log import ClientLog, plain
from cdc_sink_kafka.failures import Failure, refused_rows, sink_error
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.ordered_producer import OrderedProducer
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from confluent_kafka import KafkaError, Producer

from cdc_core import RetryableSinkError, TerminalSinkError, parse_options

GAP = "ProduceRequest for orders [3] with {} message(s) failed: Broker: {} (broker 1 PID{{Id:0,Epoch:0}}, base seq 5)"


def gapless(reason: str, messages: int = 1) -> KafkaError:
    return KafkaError(KafkaError._GAPLESS_GUARANTEE, GAP.format(messages, reason))


def test_the_fatal_error_of_a_client_contains_the_reason() -> None:
    failure = Failure.of_client(gapless("Topic authorization failed", 7))
    assert (failure.topic, failure.messages, failure.code) == ("orders", 7, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert not failure.consequence
    assert Failure.of_client(gapless("Message size too large")).too_large


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TerminalSinkError),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, TerminalSinkError),
        (KafkaError.INVALID_RECORD, TerminalSinkError),
        (KafkaError.POLICY_VIOLATION, TerminalSinkError),
        (KafkaError.NOT_ENOUGH_REPLICAS, RetryableSinkError),
        (KafkaError._UNKNOWN_TOPIC, RetryableSinkError),
        (KafkaError.UNKNOWN_PRODUCER_ID, RetryableSinkError),
        (KafkaError._FATAL, RetryableSinkError),
    ],
)
def test_only_failures_that_may_pass_are_retried(code: int, kind: type) -> None:
    error = KafkaError(code)
    failure = Failure(code=error.code(), reason=error.str(), topic="orders")
    assert type(sink_error(failure, "it failed")) is kind


def test_only_a_message_refused_for_its_content_is_a_bad_row() -> None:
    for code in (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        failure = Failure(code=code, reason="no", topic="orders")
        error = refused_rows(failure)
        assert (error is not None) is (code == KafkaError.INVALID_RECORD)
        assert error is None or str(error).startswith("topic 'orders' refuses a message for its content: no; a topic")
    assert Failure(code=KafkaError._INVALID_DIFFERENT_RECORD, reason="another one").consequence


class FailingClient:
    """A client whose fatal error was lost between C and Python."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def flush(self, timeout: float) -> int:
        raise SystemError("<built-in method flush> returned NULL without setting an exception")


def test_a_client_that_fails_without_a_reason_is_retried() -> None:
    options = KafkaOptions()
    properties = client_properties("kafka://127.0.0.1:1", options, changefeed="f")
    producer = OrderedProducer({**properties, **producer_properties(options)}, stall_s=5, log=ClientLog())
    producer._producer = FailingClient(producer.client)  # type: ignore[assignment]
    producer.send("orders", [{"key": b"k", "value": b"v"}])
    with pytest.raises(RetryableSinkError, match="the client failed without giving a reason"):
        producer.flush()
    producer.close()


def test_a_closed_producer_leaves_no_client_behind(kafka_broker: Any) -> None:
    options = KafkaOptions()
    properties = client_properties(f"kafka://{kafka_broker.bootstrap_servers}", options, changefeed="f")
    gc.disable()
    try:
        producer = OrderedProducer({**properties, **producer_properties(options)}, stall_s=5, log=ClientLog())
        client = producer.client
        assert isinstance(client, Producer)
        freed = weakref.ref(producer)
        del client
        producer.close()
        del producer
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("uri", "values"),
    [
        ("kafka://127.0.0.1:1", {}),
        ("kafka://127.0.0.1:1", {"partition_alg": "fnv-1a", "kafka_sink_config": {"RequiredAcks": "NONE"}}),
        (
            "kafka://127.0.0.1:1",
            {
                "kafka_sink_config": {
                    "Flush": {"Messages": 10, "Bytes": 1000, "Frequency": "1s", "MaxMessages": 5, "MaxBytes": 5000},
                    "Version": "2.0.0.0",
                    "ClientID": "c",
                    "Compression": "LZ4",
                    "CompressionLevel": 512,
                }
            },
        ),
        (
            "kafka://127.0.0.1:1",
            {
                "tls_enabled": True,
                "sasl_enabled": True,
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_client_id": "i",
                "sasl_client_secret": "cw==",
                "sasl_token_url": "https://127.0.0.1:1/token",
                "sasl_scopes": "a",
            },
        ),
        ("confluent-cloud://127.0.0.1:1", {"api_key": "k", "api_secret": "s"}),
    ],
)
def test_librdkafka_accepts_the_properties(uri: str, values: dict[str, Any]) -> None:
    options = parse_options(KafkaOptions, values, owner="sink 'kafka'")
    properties = client_properties(uri, options, changefeed="f") | producer_properties(options)
    Producer({**properties, **ClientLog().properties()})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT,"
            " 29 identical error(s) suppressed)",
            "Connect to ipv4#127.0.0.1:1 failed: Connection refused",
        ),
        (
            "sasl_ssl://b.example.com:9093/2: SASL authentication error: Authentication failed (after 12ms in state"
            " AUTH_REQ)",
            "SASL authentication error: Authentication failed",
        ),
        ("1/1 brokers are down", "1/1 brokers are down"),
    ],
)
def test_messages_of_librdkafka_are_shown_without_its_internals(text: str, shown: str) -> None:
    assert plain(text) == shown
