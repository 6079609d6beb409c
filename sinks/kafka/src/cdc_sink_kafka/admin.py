"""Requests to the brokers that are not about messages: connections, topics, and their settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from cdc_core import CdcError, ConfigError, RetryableSinkError, TerminalSinkError
from cdc_sink_kafka.background_close import close_in_background
from cdc_sink_kafka.client_log import ClientLog, plain
from cdc_sink_kafka.failures import opening
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.producer_config import flat

NO_ID = str(Uuid(0, 0))
"""What brokers without topic ids report."""

_LIMIT_S = 10.0
_CHECK_LIMIT_S = 5.0
_CREATE_LIMIT_S = 30.0
_QUICK_S = 2.0
_ASK_S = 0.5
_HOPELESS = {
    KafkaError._AUTHENTICATION: "check the sasl options",
    KafkaError._SSL: "check ca_cert, client_cert and the names in the brokers' certificates",
    KafkaError._RESOLVE: "check the host names",
}
"""Errors of connections that last, with the remedies."""
_ABOUT_THE_NAME = {
    KafkaError.TOPIC_EXCEPTION: "is refused by the brokers",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "cannot be seen, created or written by the user",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "does not exist, and the user may not create topics",
    KafkaError.POLICY_VIOLATION: "violates the brokers' policy",
}
"""The only errors that say something of one topic. Every other one may pass, and is no reason to refuse a row."""
_ABOUT_THE_OPTIONS = (KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_REPLICATION_FACTOR)
_FINAL = (KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS)
"""What only the user's definition can change. Too few brokers for the replicas may be more brokers later."""
_MAY_WRITE = (AclOperation.ALL, AclOperation.WRITE)


class Administrator:
    """A connection for administration. A context manager.

    While a changefeed is *running*, an error of the brokers that says nothing of a topic may pass, and is retried.
    """

    def __init__(self, properties: Mapping[str, Any], options: KafkaOptions, *, running: bool = False) -> None:
        self._properties = properties
        self._options = options
        self._running = running
        self._log = ClientLog(level=logging.INFO)
        self._clients: list[AdminClient] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self, producer_properties: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Return when a producer with these properties can reach the brokers and the topics. Raises: ConfigError."""
        self._connect(producer_properties)
        try:
            missing = self._missing(topics)
            if not missing or self._options.create_kafka_topics == "auto":
                return
            if self._options.create_kafka_topics == "off":
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                raise ConfigError(
                    f"topic '{missing[0]}'{more} does not exist, and create_kafka_topics is off; create it, or set"
                    " create_kafka_topics to explicit"
                )
            self._create(missing, validate_only=True)
        except RetryableSinkError as error:
            raise ConfigError(f"sink 'kafka' cannot be checked: {error}", repairable=True) from None

    def check_creation(self, topic: str) -> None:
        """Return when the settings of new topics are valid, as far as they do not depend on the name.

        *topic* is a name that no topic has. Raises: ConfigError.
        """
        if self._options.create_kafka_topics != "explicit":
            return
        error = self._creation_errors([topic], validate_only=True).get(topic)
        if error is None or error.code() in _ABOUT_THE_NAME:
            return
        if error.code() not in _ABOUT_THE_OPTIONS:
            text = self._unanswered(plain(error.str()))
            raise ConfigError(f"sink 'kafka' cannot be checked: {text}", repairable=True)
        raise ConfigError(
            "sink 'kafka': topics cannot be created with these topic_partitions, topic_replication_factor and"
            f" topic_configs: {plain(error.str())}; change these options",
            repairable=error.code() not in _FINAL,
        )

    def prepare(self, topics: Sequence[str]) -> None:
        """Create missing topics if the options say so.

        Raises: ConfigError, or TerminalSinkError for a running changefeed; RetryableSinkError.
        """
        if self._options.create_kafka_topics != "explicit":
            return
        missing = self._missing(topics)
        if not missing:
            return
        self._create(missing, validate_only=False)
        self.close()  # a quota for new topics delays what this connection asks next
        self._await_listed(topics)

    def admit(self, topic: str) -> str | None:
        """Return when *topic* exists, or brokers create it on demand; or why it can never be written, as a predicate.

        Raises: RetryableSinkError for every error that may pass; TerminalSinkError for brokers that refuse the user.
        """
        found = self._describe([topic], rights=True)[topic]
        if isinstance(found, KafkaError) and found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            if self._options.create_kafka_topics == "auto":
                return None
            if self._options.create_kafka_topics == "off":
                return "does not exist, and create_kafka_topics is off"
            error = self._creation_errors([topic], validate_only=False).get(topic)
            if error is not None:
                return self._reason(error, topic)
            self._await_listed([topic])
            found = self._describe([topic], rights=True)[topic]
        if isinstance(found, KafkaError):
            return self._reason(found, topic)
        rights = found.authorized_operations
        if rights and not any(right in rights for right in _MAY_WRITE):
            return "cannot be written by the user"
        return "is internal to Kafka" if found.is_internal else None

    def limits(self, topics: Sequence[str]) -> dict[str, int | None]:
        """Return `max.message.bytes` of each topic, None if it cannot be read."""
        return self._settings(topics, "max.message.bytes", limit_s=_LIMIT_S)

    def obstacle(self, topics: Sequence[str]) -> str:
        """Return which partition of *topics* takes no messages now, and why; nothing if the brokers do not say."""
        found = self._describe(topics, limit_s=_QUICK_S)
        known = {topic: about for topic, about in found.items() if not isinstance(about, KafkaError)}
        least = self._settings(list(known), "min.insync.replicas", limit_s=_QUICK_S)
        for topic, about in known.items():
            needed = least[topic] or 0
            for partition in about.partitions:
                what, in_sync = f"partition {partition.id} of topic '{topic}' has", len(partition.isr)
                brokers = ", ".join(str(node.id) for node in partition.replicas)
                if partition.leader is None or partition.leader.id < 0:
                    return f"{what} no leader; start broker {brokers}"
                if in_sync < needed:
                    enough = len(partition.replicas) >= needed
                    remedy = f"start broker {brokers}" if enough else "add replicas, or lower that setting"
                    return f"{what} {in_sync} of {needed} in-sync replicas that min.insync.replicas demands; {remedy}"
        return ""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return the id of each of *topics*, None for one that does not exist. Leaves out what Kafka cannot tell now.

        All topics of brokers without such ids have NO_ID.
        """
        return {
            topic: None if isinstance(found, KafkaError) else str(found.topic_id)
            for topic, found in self._describe(topics, limit_s=_QUICK_S).items()
            if not isinstance(found, KafkaError) or found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        }

    def close(self) -> None:
        """Release the connection."""
        clients, self._clients = self._clients, []
        close_in_background(clients)

    def _settings(self, topics: Sequence[str], name: str, *, limit_s: float) -> dict[str, int | None]:
        """Return the number that the setting *name* of each topic is, None if it cannot be read."""
        found: dict[str, int | None] = dict.fromkeys(topics)
        if not topics:
            return found
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        for resource, future in self._admin.describe_configs(resources, request_timeout=limit_s).items():
            try:
                found[resource.name] = int(future.result()[name].value)
            except (KafkaException, KeyError, TypeError, ValueError):
                continue
        return found

    @property
    def _admin(self) -> AdminClient:
        if not self._clients:
            properties = {**self._properties, **self._log.properties()}
            logger = properties.pop("logger")
            with opening(ConfigError):
                self._clients.append(AdminClient(properties, logger=logger))
        return self._clients[0]

    def _connect(self, producer_properties: Mapping[str, Any]) -> None:
        """Return when a broker answers. Raises: ConfigError with the cause, in seconds."""
        with opening(ConfigError):
            probe = [Producer({**self._properties, **producer_properties, **self._log.properties()})]
        try:
            self._await_answer(probe)
        finally:
            close_in_background(probe)

    def _await_answer(self, probe: Sequence[Producer]) -> None:
        brokers = self._properties["bootstrap.servers"]
        # one of several hosts may have no address
        hopeless = {
            code: remedy for code, remedy in _HOPELESS.items() if code != KafkaError._RESOLVE or "," not in brokers
        }
        deadline = time.monotonic() + _CHECK_LIMIT_S
        ask_s = _ASK_S
        while True:
            try:
                probe[0].list_topics(timeout=ask_s)  # all topics, because asking for one could create it
                return
            except KafkaException as error:
                reason = plain(error.args[0].str())
            ask_s *= 1.5  # there may be very many topics
            probe[0].poll(0)
            for code, remedy in hopeless.items():
                if code in self._log.codes:
                    raise ConfigError(
                        f"sink 'kafka' cannot connect to {brokers}: {self._log.trouble()}; {remedy}", repairable=True
                    )
            if time.monotonic() > deadline:
                reason = self._log.trouble() or reason
                raise ConfigError(
                    f"sink 'kafka' cannot connect to {brokers}: {reason}; check the address and tls_enabled, and"
                    " whether the brokers are running",
                    repairable=True,
                )

    def _missing(self, topics: Sequence[str]) -> list[str]:
        """Return those of *topics* that do not exist. Creates none, whatever the settings of the brokers."""
        missing = []
        for topic, found in self._describe(topics).items():
            if not isinstance(found, KafkaError):
                continue
            if found.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._refusal(found, f"topic '{topic}' cannot be looked up")
            missing.append(topic)
        return missing

    def _await_listed(self, topics: Sequence[str]) -> None:
        deadline = time.monotonic() + _CREATE_LIMIT_S
        while missing := self._missing(topics):
            if time.monotonic() > deadline:
                raise RetryableSinkError(f"topic '{missing[0]}' was created, but the brokers do not list it")
            self._admin.poll(0.1)

    def _describe(
        self, topics: Sequence[str], *, limit_s: float = _LIMIT_S, rights: bool = False
    ) -> dict[str, TopicDescription | KafkaError]:
        """Return what the brokers say about each of *topics*; with *rights*, also what the user may do."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=limit_s, include_authorized_operations=rights
        )
        return {topic: _error_of(future) or future.result() for topic, future in futures.items()}

    def _create(self, topics: Sequence[str], *, validate_only: bool) -> None:
        for topic, error in self._creation_errors(topics, validate_only=validate_only).items():
            raise self._refusal(error, f"topic '{topic}' cannot be created")

    def _creation_errors(self, topics: Sequence[str], *, validate_only: bool) -> dict[str, KafkaError]:
        """Create *topics*, and return the errors of those that do not exist now."""
        configs = {name: str(value) for name, value in flat(self._options.topic_configs or {})}
        wanted = [
            NewTopic(
                topic,
                num_partitions=self._options.topic_partitions,
                replication_factor=self._options.topic_replication_factor,
                config=configs,
            )
            for topic in topics
        ]
        futures = self._admin.create_topics(wanted, request_timeout=_LIMIT_S, validate_only=validate_only)
        errors = {topic: _error_of(future) for topic, future in futures.items()}
        return {
            topic: error
            for topic, error in errors.items()
            if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS
        }

    def _refusal(self, error: KafkaError, what: str) -> CdcError:
        text, code = f"{what}: {plain(error.str())}", error.code()
        refusal = TerminalSinkError if self._running else ConfigError
        if code in _ABOUT_THE_NAME or (code in _ABOUT_THE_OPTIONS and not self._running):
            return refusal(text, repairable=code not in _FINAL)
        return self._unanswered(text)

    def _reason(self, error: KafkaError, topic: str) -> str:
        """Return why *topic* can never be written. Raises: as `admit` for an *error* that says nothing of it."""
        if error.code() not in _ABOUT_THE_NAME:
            raise self._unanswered(f"topic '{topic}' cannot be looked up or created: {plain(error.str())}")
        return f"{_ABOUT_THE_NAME[error.code()]}: {plain(error.str())}"

    def _unanswered(self, text: str) -> CdcError:
        self._admin.poll(0)
        error = self._log.failure(text)
        return error if self._running else RetryableSinkError(str(error), repairable=True)


def _error_of(future: Future[Any]) -> KafkaError | None:
    try:
        future.result()
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    return None
