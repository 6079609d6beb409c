from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from cdc_sink_kafka.client_log import ClientLog, plain
from cdc_sink_kafka.failures import Failure, refused_rows, sink_error
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.outbox import Outbox
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_kafka.sink import KafkaSink
from confluent_kafka import KafkaError, Producer

from cdc_core import RetryableSinkError, TerminalSinkError, Timestamp
from cdc_core.options import parse_options

GAP = "ProduceRequest for orders [3] with {} message(s) failed: Broker: {} (broker 1 PID{{Id:0,Epoch:0}}, base seq 5)"


def gapless(reason: str, messages: int = 1) -> KafkaError:
    return KafkaError(KafkaError._GAPLESS_GUARANTEE, GAP.format(messages, reason))


def test_the_reason_of_a_client_that_ends_is_read_from_its_error() -> None:
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
def test_what_a_retry_can_cure_is_retried(code: int, kind: type) -> None:
    error = KafkaError(code)
    failure = Failure(code=error.code(), reason=error.str(), topic="orders")
    assert type(sink_error(failure, "it failed")) is kind


def test_a_record_that_is_refused_for_what_it_holds_is_a_rows_fault_and_nothing_else_is() -> None:
    for code in (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        failure = Failure(code=code, reason="no", topic="orders")
        error = refused_rows(failure)
        assert (error is not None) is (code == KafkaError.INVALID_RECORD)
        assert error is None or str(error).startswith("topic 'orders' refuses a message for what it holds: no; a topic")
    assert Failure(code=KafkaError._INVALID_DIFFERENT_RECORD, reason="another one").consequence


def test_a_compacted_topic_refuses_resolved_marks_in_one_sentence(
    open_sink: Callable[..., KafkaSink], create_topic: Callable[..., None], topic: str
) -> None:
    create_topic(1, cleanup_policy="compact")
    with pytest.raises(TerminalSinkError) as refused:
        open_sink().emit_resolved(Timestamp(1))
    text = str(refused.value)
    assert text.startswith("1 messages were not delivered to Kafka")
    assert text.endswith(
        "a topic with cleanup.policy=compact takes no message without a key, such as a resolved mark: change that"
        " setting, or leave resolved out"
    )


class Speechless:
    """A client whose fatal error got lost between C and Python."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def flush(self, timeout: float) -> int:
        raise SystemError("<built-in method flush> returned NULL without setting an exception")


def test_a_client_that_fails_without_a_reason_is_worth_another_attempt() -> None:
    options = KafkaOptions()
    properties = client_properties("kafka://127.0.0.1:1", options, changefeed="f")
    outbox = Outbox({**properties, **producer_properties(options)}, stall_s=5, log=ClientLog())
    outbox._producer = Speechless(outbox.producer)  # type: ignore[assignment]
    outbox.send("orders", [{"key": b"k", "value": b"v"}])
    with pytest.raises(RetryableSinkError, match="the client failed and has lost its reason"):
        outbox.flush()
    outbox.close()


def test_a_closed_outbox_leaves_no_client_behind(kafka_broker: Any) -> None:
    options = KafkaOptions()
    properties = client_properties(f"kafka://{kafka_broker.bootstrap_servers}", options, changefeed="f")
    gc.disable()
    try:
        outbox = Outbox({**properties, **producer_properties(options)}, stall_s=5, log=ClientLog())
        producer = outbox.producer
        assert isinstance(producer, Producer)
        freed = weakref.ref(outbox)
        del producer
        outbox.close()
        del outbox
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
def test_librdkafka_takes_the_properties(uri: str, values: dict[str, Any]) -> None:
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
def test_what_librdkafka_says_is_shown_without_its_internals(text: str, shown: str) -> None:
    assert plain(text) == shown
