"""A broker that asks for rights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_sink_kafka.sink import KafkaSink
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from cdc_core import ConfigError, RowBatch, SliceInfo, TerminalSinkError, Timestamp


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[KafkaBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker(settings=settings) as broker:
        yield broker


@pytest.fixture
def deny(strict_broker: KafkaBroker) -> Iterator[Callable[..., None]]:
    """Deny everybody an operation on a topic."""
    admin = AdminClient({"bootstrap.servers": strict_broker.bootstrap_servers, "log_level": 0})

    def binding(
        resource: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
    ) -> AclBinding:
        return AclBinding(resource, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)

    def forbid(name: str, operation: AclOperation, *others: AclOperation) -> None:
        acls = [binding(ResourceType.TOPIC, name, operation, AclPermissionType.DENY)]
        acls += [binding(ResourceType.TOPIC, name, other, AclPermissionType.ALLOW) for other in others]
        for future in admin.create_acls(acls).values():
            future.result()

    return forbid


def test_a_topic_that_may_not_be_written_stops_the_changefeed(
    strict_broker: KafkaBroker,
    deny: Callable[..., None],
    sink_of: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    sink = sink_of(strict_broker.bootstrap_servers)
    sink.prepare()
    deny(topic, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    sink.begin(first_slice)
    sink.emit(rows(range(100)))
    with pytest.raises(TerminalSinkError) as refused:
        sink.flush()
    assert re.fullmatch(
        rf"\d+ messages were not delivered to Kafka .*, the first to topic '{topic}': Broker: Topic authorization"
        r" failed; grant the user the right to write to the topic",
        str(refused.value),
    )


def test_a_topic_that_may_not_be_seen_is_told_by_the_check(
    strict_broker: KafkaBroker, deny: Callable[..., None], sink_of: Callable[..., KafkaSink], topic: str
) -> None:
    sink = sink_of(strict_broker.bootstrap_servers)
    sink.prepare()
    deny(topic, AclOperation.DESCRIBE)
    with pytest.raises(ConfigError, match=f"topic '{topic}' cannot be looked at: .*[Aa]uthorization failed"):
        sink.check()


def test_a_topic_that_may_not_be_seen_any_more_stops_the_resolved_marks(
    strict_broker: KafkaBroker, deny: Callable[..., None], sink_of: Callable[..., KafkaSink], topic: str
) -> None:
    sink = sink_of(strict_broker.bootstrap_servers)
    sink.prepare()
    deny(topic, AclOperation.DESCRIBE)
    with pytest.raises(TerminalSinkError) as refused:
        sink.emit_resolved(Timestamp(5))
    assert str(refused.value) == (
        f"topic '{topic}' may not be seen: Broker: Topic authorization failed; grant the user the right to write to the"
        " topic"
    )


def test_rows_arrive_where_the_topics_settings_may_not_be_read(
    strict_broker: KafkaBroker,
    deny: Callable[..., None],
    sink_of: Callable[..., KafkaSink],
    rows: Callable[..., RowBatch],
    read_from: Callable[..., list[Any]],
    topic: str,
    first_slice: SliceInfo,
) -> None:
    sink = sink_of(strict_broker.bootstrap_servers)
    sink.prepare()
    deny(topic, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.READ)
    sink.begin(first_slice)
    sink.emit(rows(range(100)))
    sink.flush()
    assert len(read_from(strict_broker.bootstrap_servers, topic)) == 100
