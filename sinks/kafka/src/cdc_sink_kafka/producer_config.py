"""The properties of the clients, in librdkafka's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cdc_core import ConfigError
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.security import Address, security_properties
from cdc_sink_kafka.sink_config import SinkConfig

_OWNED = {
    "bootstrap.servers": "the sink's URI",
    "metadata.broker.list": "the sink's URI",
    "security.protocol": "tls_enabled and sasl_enabled",
    "ssl.ca.pem": "ca_cert",
    "ssl.certificate.pem": "client_cert",
    "ssl.key.pem": "client_key",
    "enable.ssl.certificate.verification": "insecure_tls_skip_verify",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_user",
    "sasl.password": "sasl_password",
    "sasl.oauthbearer.method": "sasl_mechanism",
    "sasl.oauthbearer.client.id": "sasl_client_id",
    "sasl.oauthbearer.client.secret": "sasl_client_secret",
    "sasl.oauthbearer.token.endpoint.url": "sasl_token_url",
    "sasl.oauthbearer.scope": "sasl_scopes",
    "client.id": "kafka_sink_config, 'ClientID'",
    "acks": "kafka_sink_config, 'RequiredAcks'",
    "request.required.acks": "kafka_sink_config, 'RequiredAcks'",
    "enable.idempotence": "kafka_sink_config, 'RequiredAcks'",
    "enable.gapless.guarantee": "kafka_sink_config, 'RequiredAcks'",
    "max.in.flight": "kafka_sink_config, 'RequiredAcks'",
    "max.in.flight.requests.per.connection": "kafka_sink_config, 'RequiredAcks'",
    "compression.type": "kafka_sink_config, 'Compression'",
    "compression.codec": "kafka_sink_config, 'Compression'",
    "compression.level": "kafka_sink_config, 'CompressionLevel'",
    "message.max.bytes": "kafka_sink_config, 'Flush.MaxBytes'",
    "batch.num.messages": "kafka_sink_config, 'Flush.Messages'",
    "batch.size": "kafka_sink_config, 'Flush.Bytes'",
    "linger.ms": "kafka_sink_config, 'Flush.Frequency'",
    "queue.buffering.max.ms": "kafka_sink_config, 'Flush.Frequency'",
    "broker.version.fallback": "kafka_sink_config, 'Version'",
    "queue.buffering.max.kbytes": "buffer_size",
    "queue.buffering.max.messages": "buffer_size",
    "partitioner": "partition_alg",
    "message.timeout.ms": "flush_timeout",
    "delivery.timeout.ms": "flush_timeout",
    "allow.auto.create.topics": "create_kafka_topics",
}
_REFUSED = {
    "transactional.id": "the rows would be invisible until a commit, and the sink never commits",
    "delivery.report.only.error": "the sink needs failure reports",
    "retries": "when a message expires early, the step fails",
    "message.send.max.retries": "when a message expires early, the step fails",
    "queuing.strategy": "rows must be sent in the order in which they arrived",
    "default.topic.config": "topic properties are written without this prefix",
    "log_level": "the levels of the Python loggers apply",
    **dict.fromkeys(
        ("error_cb", "logger", "oauth_cb", "on_delivery", "stats_cb", "throttle_cb"),
        "it is a callback, which only a program can set",
    ),
}
_BYTES_OF_SMALL_MESSAGE = 256
"""Roughly what librdkafka needs for a message besides key and value."""


def client_properties(uri: str, options: KafkaOptions, *, changefeed: str) -> dict[str, Any]:
    """Return the properties of every connection, including an administrator's. Raises: ConfigError."""
    address = Address.of(uri)
    return {
        "bootstrap.servers": address.brokers,
        "client.id": re.sub(r"[^A-Za-z0-9._-]", "-", f"cdc-{changefeed}"),
        "topic.metadata.refresh.interval.ms": 10_000,
        "socket.keepalive.enable": True,
        **security_properties(address, options),
        **_others(options.librdkafka or {}),
    }


def producer_properties(options: KafkaOptions) -> dict[str, Any]:
    """Return the properties that a producer needs besides `client_properties`. Raises: ConfigError."""
    config = SinkConfig.of(options.kafka_sink_config)
    found = {
        "partitioner": {"murmur2": "murmur2", "fnv-1a": "fnv1a"}[options.partition_alg],
        "queue.buffering.max.kbytes": max(1, options.buffer_size // 1024),
        "queue.buffering.max.messages": max(1000, options.buffer_size // _BYTES_OF_SMALL_MESSAGE),
        "delivery.report.only.error": True,
        # the guarantee below does not cover a message that times out: later messages would be written
        "message.timeout.ms": 0,
        # a topic that is deleted during a run must not silently come back, empty and with other partitions
        "allow.auto.create.topics": options.create_kafka_topics == "auto",
        **config.properties(),
    }
    if config.RequiredAcks == "all":
        return {**found, "enable.idempotence": True, "enable.gapless.guarantee": True}
    # without sequence numbers, the next batch must not overtake a batch that is retried
    return {**found, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}


def _others(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that the user sets under `librdkafka`."""
    found = dict(flat(properties))
    for name in found:
        if name in _OWNED:
            raise ConfigError(
                f"sink 'kafka': the property '{name}' cannot be set under 'librdkafka'; use {_OWNED[name]}"
            )
        if name in _REFUSED:
            raise ConfigError(f"sink 'kafka': the property '{name}' cannot be set: {_REFUSED[name]}")
    return found


def flat(properties: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the entries of nested tables under dotted names. Raises: ConfigError for values such as lists."""
    found: list[tuple[str, Any]] = []
    for name, value in properties.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool):
            found.append((prefix + name, value))
        else:
            raise ConfigError(f"sink 'kafka': the property '{prefix}{name}' must be text, a number or a flag")
    return found
