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

from cdc_core import CdcError, RetryableSinkError, TerminalSinkError, parse_options
from cdc_core.errors import is_outage

TOKEN = "Failed to acquire SASL OAUTHBEARER token: "
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
        (KafkaError.SASL_AUTHENTICATION_FAILED, TerminalSinkError),
    ],
)
def test_only_failures_that_may_pass_are_retried(code: int, kind: type) -> None:
    assert type(error_of(code)) is kind


REPAIRABLE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.SECURITY_DISABLED,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}
COUNTED = {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_each_code_of_the_client_is_repairable_counted_an_outage_or_final() -> None:
    codes = {
        code
        for name in dir(KafkaError)
        if name.lstrip("_").isupper() and isinstance(code := getattr(KafkaError, name), int)
    }
    assert len(codes) > 100
    errors = {code: error_of(code) for code in codes}
    assert {code for code, error in errors.items() if error.repairable} == REPAIRABLE
    retried = {code for code, error in errors.items() if isinstance(error, RetryableSinkError)}
    assert {code for code in retried if not is_outage(errors[code])} == COUNTED
    assert {type(errors[code]) for code in codes - retried} == {TerminalSinkError}


def error_of(code: int) -> CdcError:
    error = KafkaError(code)
    return sink_error(Failure(code=error.code(), reason=error.str(), topic="orders"), "it failed")


@pytest.mark.parametrize(
    ("code", "text", "repairable"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed", True),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", True),
        (
            KafkaError._TRANSPORT,
            "Receive failed: SSL routines::tlsv13 alert certificate required: SSL alert number 116",
            True,
        ),
        (KafkaError._AUTHENTICATION, "SASL authentication error: request timed out", False),
        (KafkaError._AUTHENTICATION, f"{TOKEN}Failed to connect to h port 443: Could not connect to server", False),
        (KafkaError._AUTHENTICATION, f"{TOKEN}Could not resolve host: idp", False),
        (KafkaError._AUTHENTICATION, f'{TOKEN}{{"error":"invalid_client"}}', True),
        (KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused", False),
        (KafkaError._RESOLVE, "Failed to resolve 'nohost:9092'", False),
    ],
)
def test_brokers_that_refuse_connections_are_told_from_those_out_of_reach(
    code: int, text: str, repairable: bool
) -> None:
    log = ClientLog()
    assert is_outage(log.failure("no answer"))
    log._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    log._on_error(KafkaError(code, text))
    error = log.failure("no answer")
    assert str(error).startswith(f"no answer: {plain(text)}")
    assert error.repairable is repairable
    assert is_outage(error) is not repairable
    log.forget()
    assert is_outage(log.failure("no answer"))


def test_only_a_message_refused_for_its_content_is_a_bad_row() -> None:
    for code in (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        failure = Failure(code=code, reason="no", topic="orders")
        error = refused_rows(failure)
        assert (error is not None) is (code == KafkaError.INVALID_RECORD)
        assert error is None or str(error).startswith(
            "topic 'orders' refuses a message because of its content: no; a topic"
        )
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
    producer.send("orders", [b"k"], [b"v"])
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
