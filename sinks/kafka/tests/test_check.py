"""`cdc check` reports problems with the brokers in one sentence, within seconds, without secrets."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.resolved_sink import KafkaResolvedSink
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing.kafka_fixtures import KAFKA_PASSWORD, KAFKA_USER
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows, table_name
from cdc_testing.shared_servers import SecuredKafka

from cdc_core import CdcError, ConfigError, RetryableSinkError, TerminalSinkError, Timestamp

_LIMIT_S = 120.0


@pytest.fixture
def complaint(
    kafka: KafkaRig, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[..., str]:
    """Return the error of a check. The check must be fast and reveal no secret."""

    def check(address: str, options: dict[str, Any], **changes: Any) -> str:
        started = time.monotonic()
        with pytest.raises(ConfigError) as refused:
            kafka.at(address).destination(options, **changes).check()
        assert time.monotonic() - started < _LIMIT_S
        text = str(refused.value)
        assert refused.value.repairable is ("cannot connect" in text or "only 1 broker" in text)
        out, err = capfd.readouterr()
        assert out + err == ""
        for secret in (KAFKA_PASSWORD, "wrong-password"):
            assert secret not in text + caplog.text
        assert "\n" not in text
        return text

    return check


def encoded(path: Any) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.slow
def test_a_broker_that_does_not_run(complaint: Callable[..., str]) -> None:
    assert complaint("127.0.0.1:1", {}) == (
        "sink 'kafka' cannot connect to 127.0.0.1:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused; check the"
        " address and tls_enabled, and whether the brokers are running"
    )


def test_a_host_without_an_address(complaint: Callable[..., str]) -> None:
    text = complaint("nohost.invalid:9092", {})
    assert text.startswith("sink 'kafka' cannot connect to nohost.invalid:9092: Failed to resolve")
    assert text.endswith("check the host names")


def test_one_of_several_hosts_may_have_no_address(
    complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_sink_kafka.admin._CHECK_LIMIT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = complaint(f"127.0.0.1:{silent.getsockname()[1]},nohost.invalid:9092", {})
    assert text.endswith("check the address and tls_enabled, and whether the brokers are running")


def test_topics_that_cannot_be_created_for_now_are_created_by_another_attempt(
    kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_sink_kafka.admin._LIMIT_S", 1.0)
    with pytest.raises(
        RetryableSinkError, match=r"cannot be looked up: .*: Connect to .* Connection refused"
    ) as failed:
        kafka.at("127.0.0.1:9").destination().prepare()
    assert failed.value.repairable


@pytest.mark.slow
def test_a_quota_for_new_topics_delays_no_start(own_broker: KafkaBroker, own_kafka: KafkaRig) -> None:
    named = ("--entity-type", "clients", "--entity-name", "cdc-slowed")
    own_broker.change_configs(*named, "--add-config", "controller_mutation_rate=0.5")
    tables = tuple(table_name(f"t{number}") for number in range(20))
    own_kafka.destination(changefeed="slowed", tables=tables).prepare()


def test_a_missing_topic_when_none_are_created(kafka: KafkaRig, complaint: Callable[..., str]) -> None:
    assert complaint(kafka.address, {"create_kafka_topics": "off"}) == (
        f"topic '{kafka.topic}' does not exist, and create_kafka_topics is off; create it, or set"
        " create_kafka_topics to explicit"
    )


def test_a_topic_that_exists_when_none_are_created(kafka: KafkaRig) -> None:
    kafka.create_topic()
    kafka.destination({"create_kafka_topics": "off"}).check()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic_replication_factor": 3}, "only 1 broker"),
        ({"topic_configs": {"retention.msx": 1}}, "Unknown topic config name: retention.msx"),
        ({"topic_configs": {"retention": {"ms": "x"}}}, "Invalid value x for configuration retention.ms"),
        ({"topic_configs": {"retention.ms": "x"}}, "Invalid value x for configuration retention.ms"),
    ],
)
def test_a_topic_that_could_not_be_created(
    options: dict[str, Any], reason: str, kafka: KafkaRig, complaint: Callable[..., str]
) -> None:
    text = complaint(kafka.address, options)
    assert text.startswith(f"topic '{kafka.topic}' cannot be created: ")
    assert reason in text


def test_a_property_that_librdkafka_does_not_have(kafka: KafkaRig, complaint: Callable[..., str]) -> None:
    assert complaint(kafka.address, {"librdkafka.socket.timeout": 5}) == (
        "sink 'kafka': librdkafka refuses the properties: No such configuration property: \"socket.timeout\""
    )


def test_a_file_that_the_client_cannot_read_may_be_repaired(kafka: KafkaRig) -> None:
    options = {"tls_enabled": True, "librdkafka.ssl.ca.location": "/missing.pem"}
    destination, context = kafka.destination(options), kafka.context(options)
    write, mark = KafkaSink(context).emit, KafkaResolvedSink(context).emit_resolved
    for call in (destination.check, destination.prepare, lambda: write(rows([1])), lambda: mark(Timestamp(1))):
        with pytest.raises(CdcError, match=r"properties: ssl\.ca\.location failed: .*; the file must be") as refused:
            call()
        assert refused.value.repairable


def test_two_tables_of_one_topic(kafka: KafkaRig, complaint: Callable[..., str]) -> None:
    tables = (table_name(schema="a"), table_name(schema="b"))
    assert "would both go to topic" in complaint(kafka.address, {}, tables=tables)


def sasl(mechanism: str, **changes: Any) -> dict[str, Any]:
    return {
        "sasl_enabled": True,
        "sasl_mechanism": mechanism,
        "sasl_user": KAFKA_USER,
        "sasl_password": KAFKA_PASSWORD,
        **changes,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(mechanism: str, secured_broker: SecuredKafka, complaint: Callable[..., str]) -> None:
    text = complaint(secured_broker.address("SASL_PLAINTEXT"), sasl(mechanism, sasl_password="wrong-password"))
    assert text.startswith(f"sink 'kafka' cannot connect to {secured_broker.address('SASL_PLAINTEXT')}: ")
    assert "Authentication failed" in text
    assert text.endswith("check the sasl options")


@pytest.mark.usefixtures("short_waits")
def test_a_password_that_was_rotated_and_a_certificate_that_expired_may_be_repaired(
    secured_broker: SecuredKafka, kafka: KafkaRig
) -> None:
    given = [
        (secured_broker.address("SASL_PLAINTEXT"), sasl("SCRAM-SHA-256", sasl_password="wrong-password")),
        (secured_broker.address("SASL_SSL"), sasl("PLAIN", tls_enabled=True)),
        (
            secured_broker.address("MTLS"),
            {"tls_enabled": "true", "ca_cert": secured_broker.certificates.ca.read_text()},
        ),
    ]
    for address, options in given:
        sink = kafka.at(address).sink({**options, "create_kafka_topics": "off", "flush_timeout": "3s"})
        sink.emit(rows([1]))
        with pytest.raises(TerminalSinkError, match=r"acknowledged no message .*(?i:auth|certificate)") as refused:
            sink.flush()
        assert refused.value.repairable
    address, options = given[0]
    marks = kafka.at(address).resolved_sink({**options, "create_kafka_topics": "off"})
    with pytest.raises(TerminalSinkError, match=r"did not return the partitions .*(?i:auth)") as refused:
        marks.emit_resolved(Timestamp(5))
    assert refused.value.repairable


def test_a_broker_that_demands_authentication(secured_broker: SecuredKafka, complaint: Callable[..., str]) -> None:
    text = complaint(secured_broker.address("SASL_PLAINTEXT"), {})
    assert text.startswith("sink 'kafka' cannot connect to ")


def test_a_certificate_of_an_unknown_authority(secured_broker: SecuredKafka, complaint: Callable[..., str]) -> None:
    text = complaint(secured_broker.address("SASL_SSL"), sasl("PLAIN", tls_enabled=True))
    assert "certificate verify failed" in text
    assert text.endswith("check ca_cert, client_cert and the names in the brokers' certificates")


@pytest.mark.slow
def test_a_broker_without_tls(kafka: KafkaRig, complaint: Callable[..., str]) -> None:
    text = complaint(kafka.address, {"tls_enabled": True})
    assert "SSL" in text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_rows_arrive_over_tls_with_a_password(mechanism: str, secured_broker: SecuredKafka, kafka: KafkaRig) -> None:
    options = sasl(mechanism, tls_enabled=True, ca_cert=encoded(secured_broker.certificates.ca))
    secured = kafka.at(secured_broker.address("SASL_SSL"))
    secured.destination(options).check()
    sink = secured.sink(options)
    sink.emit(rows(range(10)))
    sink.flush()
    assert len(kafka.at(secured_broker.bootstrap_servers).received()) == 10


def test_rows_arrive_with_a_client_certificate(secured_broker: SecuredKafka, kafka: KafkaRig) -> None:
    options = {
        "tls_enabled": "true",
        "ca_cert": secured_broker.certificates.ca.read_text(),
        "client_cert": encoded(secured_broker.certificates.client_cert),
        "client_key": encoded(secured_broker.certificates.client_key),
    }
    secured = kafka.at(secured_broker.address("MTLS"))
    secured.destination(options).check()
    sink = secured.sink(options)
    sink.emit(rows(range(10)))
    assert sink.flush().messages == 10


def test_any_certificate_is_accepted_without_verification(secured_broker: SecuredKafka, kafka: KafkaRig) -> None:
    options = sasl("PLAIN", tls_enabled=True, insecure_tls_skip_verify=True)
    kafka.at(secured_broker.address("SASL_SSL")).destination(options).check()
