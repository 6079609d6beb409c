"""The reader returns what a consumer sees."""

from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_kafka.demo.servers import admin_client
from cdc_sink_kafka.reader import KafkaReader
from cdc_testing.kafka_fixtures import KAFKA_PASSWORD, KAFKA_USER
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows, table_name
from cdc_testing.shared_servers import SecuredKafka
from confluent_kafka import TopicPartition

from cdc_core import ConfigError


def test_topics_that_do_not_exist_yet_have_nothing_to_read(kafka: KafkaRig) -> None:
    reader = KafkaReader(kafka.context(tables=(table_name("orders"), table_name("unchanging"))))
    assert list(reader.read()) == list(reader.endpoints()) == []
    reader.close()
    reader.close()


def test_partitions_that_lost_their_first_messages_are_named(kafka: KafkaRig) -> None:
    kafka.create_topic(2)
    reader = KafkaReader(kafka.context())
    sink = kafka.sink()
    sink.emit(rows(range(20)))
    sink.flush()
    assert list(reader.truncated()) == []
    with admin_client(kafka.address) as admin:
        for future in admin.delete_records([TopicPartition(kafka.topic, 1, 3)]).values():
            future.result(30.0)
    assert list(reader.truncated()) == [(kafka.topic, 1)]
    assert len(list(reader.read())) == 17
    reader.close()


def test_it_connects_as_the_sink_does(secured_broker: SecuredKafka, kafka: KafkaRig) -> None:
    options: dict[str, Any] = {
        "tls_enabled": "true",
        "ca_cert": secured_broker.certificates.ca.read_text(),
        "sasl_enabled": "true",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_user": KAFKA_USER,
        "sasl_password": KAFKA_PASSWORD,
    }
    secured = kafka.at(secured_broker.address("SASL_SSL"))
    sink = secured.sink(options)
    sink.emit(rows([1]))
    sink.flush()
    reader = KafkaReader(secured.context(options))
    assert [message.key for message in reader.read()] == [b"[1]"]
    reader.close()


def test_a_uri_that_names_no_broker_is_refused(kafka: KafkaRig) -> None:
    with pytest.raises(ConfigError, match="names no broker"):
        list(KafkaReader(kafka.at("").context()).read())
