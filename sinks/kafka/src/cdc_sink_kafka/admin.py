"""What is asked of brokers besides taking messages: whether they are there, and their topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_core.errors import ConfigError
from cdc_sink_kafka.options import KafkaOptions

__all__ = ["Administrator"]

log = logging.getLogger(__name__)

_LIMIT_S = 10.0


class Administrator:
    """Looks after the topics."""

    def __init__(self, properties: Mapping[str, Any], options: KafkaOptions) -> None:
        self._client = AdminClient(dict(properties), logger=log)
        self._options = options

    def check(self, topics: Sequence[str]) -> None:
        """Return when the brokers answer and no topic is missing that nobody will create. Raises: ConfigError."""
        try:
            missing = self.missing(topics)
        except KafkaException as error:
            raise ConfigError(f"sink 'kafka' cannot reach its brokers: {error.args[0].str()}") from None
        if missing and self._options.create_kafka_topics == "off":
            raise ConfigError(
                f"topic '{missing[0]}' does not exist and create_kafka_topics is off: create it, or choose explicit"
            )

    def prepare(self, topics: Sequence[str]) -> None:
        """Return when every topic is there that the options allow to be created."""
        if self._options.create_kafka_topics != "explicit":
            return
        missing = self.missing(topics)
        if not missing:
            return
        new = [
            NewTopic(
                topic,
                num_partitions=self._options.topic_partitions,
                replication_factor=self._options.topic_replication_factor,
                config={name: str(value) for name, value in (self._options.topic_configs or {}).items()},
            )
            for topic in missing
        ]
        for topic, future in self._client.create_topics(new, request_timeout=_LIMIT_S).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ConfigError(f"topic '{topic}' cannot be created: {error.args[0].str()}") from None

    def missing(self, topics: Sequence[str]) -> list[str]:
        """Return those of *topics* that are not there. Creates none, whatever the broker's settings."""
        if not topics:
            self._client.list_topics(timeout=_LIMIT_S)
            return []
        found = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=_LIMIT_S)
        missing = []
        for topic, future in found.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                missing.append(topic)
        return missing
