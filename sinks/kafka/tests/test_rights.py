"""A broker that checks the rights of users."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows
from cdc_testing.runs import eventually
from cdc_testing.shared_servers import SecuredKafka
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from cdc_core import ConfigError, TerminalSinkError, Timestamp


@pytest.fixture
def deny(secured_broker: SecuredKafka) -> Callable[..., None]:
    """Deny all users an operation on a topic."""
    admin = AdminClient({"bootstrap.servers": secured_broker.bootstrap_servers, "log_level": 0})

    def binding(
        resource: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
    ) -> AclBinding:
        return AclBinding(resource, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)

    def forbid(name: str, operation: AclOperation, *others: AclOperation) -> None:
        acls = [binding(ResourceType.TOPIC, name, operation, AclPermissionType.DENY)]
        acls += [binding(ResourceType.TOPIC, name, other, AclPermissionType.ALLOW) for other in others]
        for future in admin.create_acls(acls).values():
            future.result()
        any_ = (ResourceType.TOPIC, name, ResourcePatternType.LITERAL, None, None, AclOperation.ANY)
        known = AclBindingFilter(*any_, AclPermissionType.ANY)
        eventually("the rights", lambda: len(admin.describe_acls(known).result()) == len(acls))

    return forbid


def test_a_topic_without_the_right_to_write_stops_the_changefeed(
    secured_broker: SecuredKafka, deny: Callable[..., None], kafka: KafkaRig
) -> None:
    sink = kafka.at(secured_broker.bootstrap_servers).sink()
    deny(kafka.topic, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    sink.emit(rows(range(100)))
    with pytest.raises(TerminalSinkError) as refused:
        sink.flush()
    assert refused.value.repairable
    assert re.fullmatch(
        rf"\d+ messages? (?:was|were) not delivered to Kafka .*, the first to topic '{kafka.topic}': Broker: Topic"
        r" authorization failed; grant the user the rights Describe and Write on the topic",
        str(refused.value),
    )


def test_the_check_reports_a_topic_without_the_right_to_describe(
    secured_broker: SecuredKafka, deny: Callable[..., None], kafka: KafkaRig
) -> None:
    destination = kafka.at(secured_broker.bootstrap_servers).destination()
    destination.prepare()
    deny(kafka.topic, AclOperation.DESCRIBE)
    expected = f"topic '{kafka.topic}' cannot be looked up: .*[Aa]uthorization failed"
    for ask in (destination.check, destination.prepare):
        with pytest.raises(ConfigError, match=expected) as refused:
            ask()
        assert refused.value.repairable


def test_a_topic_without_the_right_to_describe_stops_the_resolved_marks(
    secured_broker: SecuredKafka, deny: Callable[..., None], kafka: KafkaRig
) -> None:
    sink = kafka.at(secured_broker.bootstrap_servers).resolved_sink()
    deny(kafka.topic, AclOperation.DESCRIBE)
    with pytest.raises(TerminalSinkError) as refused:
        sink.emit_resolved(Timestamp(5))
    assert refused.value.repairable
    assert str(refused.value) == (
        f"topic '{kafka.topic}' cannot be looked up: Broker: Topic authorization failed; grant the user the rights"
        " Describe and Write on the topic"
    )


def test_rows_arrive_without_the_right_to_read_the_settings_of_topics(
    secured_broker: SecuredKafka, deny: Callable[..., None], kafka: KafkaRig
) -> None:
    sink = kafka.at(secured_broker.bootstrap_servers).sink()
    deny(kafka.topic, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.READ)
    sink.emit(rows(range(100)))
    sink.flush()
    assert len(kafka.at(secured_broker.bootstrap_servers).received()) == 100


def test_rows_for_a_topic_that_the_user_may_not_write_are_refused_and_no_others(
    secured_broker: SecuredKafka, deny: Callable[..., None], kafka: KafkaRig
) -> None:
    sink = kafka.at(secured_broker.bootstrap_servers).sink(routed=True)
    assert sink.admit("open") is None
    assert sink.admit("closed") is None
    others = [AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]
    deny(f"{kafka.prefix}closed", AclOperation.WRITE, *others)
    deny(f"{kafka.prefix}hidden", AclOperation.DESCRIBE)
    later = kafka.at(secured_broker.bootstrap_servers).sink(routed=True)
    reasons = {name: later.admit(name) for name in ("open", "closed", "hidden")}
    assert reasons["open"] is None
    assert str(reasons["closed"]).endswith("closed', which its cdc_topic names, cannot be written by the user")
    assert "cannot be seen, created or written by the user: Broker: Topic auth" in str(reasons["hidden"])
