"""Options of the Kafka sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cdc_core import MB, ByteSize, Duration, option
from cdc_sink_kafka.sink_config import SinkConfig

_PEM = "as PEM text or as base64 of PEM text"
_OAUTH = "For `OAUTHBEARER`: "


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The options about brokers, topics and messages. They may also be parameters of the sink's URI."""

    topic_name: str | None = option(None, doc="One topic for all tables, instead of one for each table.")
    topic_prefix: str = option("", doc="Prefix of topic names that come from table names.")
    create_kafka_topics: Literal["explicit", "auto", "off"] = option(
        "explicit",
        doc="Who creates missing topics. `explicit`: the changefeed, before its first row. `auto`: the broker, at the"
        " first message, if its settings allow that. `off`: a missing topic is an error at the start.",
    )
    topic_partitions: int = option(
        -1, doc="Partitions of topics that the changefeed creates; -1 means the broker's default."
    )
    topic_replication_factor: int = option(
        -1, doc="Replicas of topics that the changefeed creates; -1 means the broker's default."
    )
    topic_configs: dict[str, Any] = option(
        None,
        doc='Settings of topics that the changefeed creates: `{"retention.ms": "-1"}`. Do not combine `compact`'
        " with `resolved`: a compacted topic accepts no message without a key.",
    )
    partition_alg: Literal["murmur2", "fnv-1a"] = option(
        "murmur2",
        doc="Hash function that maps keys to partitions: `murmur2` as in Kafka's Java clients, `fnv-1a` as in"
        " CockroachDB.",
    )
    tombstones_on_delete: bool = option(
        False,
        doc="Write a second message for each deleted row, with its key and without a value, directly after the first."
        " A compacted topic then removes the key. Has no effect in envelopes whose deletes are already tombstones."
        " Cannot be combined with key_column.",
    )
    kafka_sink_config: dict[str, Any] = option(
        None, doc="Batches, acknowledgements and compression. The README of the sink lists the keys."
    )
    buffer_size: ByteSize = option(
        ByteSize(64 * MB),
        doc="Total size of unacknowledged messages that each writer buffers. When the buffer is full, reading from the"
        " source pauses. Sets `queue.buffering.max.kbytes` and `queue.buffering.max.messages`.",
    )
    flush_timeout: Duration = option(
        Duration(120.0),
        doc="How long to wait while no message is acknowledged. The client retries for this time. After that, the step"
        " fails and is repeated.",
    )
    librdkafka: dict[str, Any] = option(
        None,
        doc="Any other librdkafka property: `librdkafka.socket.keepalive.enable = true`. Properties that another"
        " option sets are refused.",
    )
    extra_headers: dict[str, Any] = option(None, doc='Headers of every message: `{"origin": "shop"}`.')
    headers_json_column_name: str | None = option(
        None,
        doc="A column of JSON objects whose entries become headers of the row's message. The message does not contain"
        " the column. Every table must have this column.",
    )
    header_updated: str | None = option(
        None, doc="Name of a header with the commit timestamp of the row, in the format of `updated`."
    )
    header_table: str | None = option(
        None, doc="Name of a header with the full name of the row's table: `database.schema.table`."
    )
    tls_enabled: bool = option(False, doc="Encrypt the connection.")
    ca_cert: str | None = option(
        None, doc=f"Certificates of the authorities to trust, {_PEM}. Default: those of the system."
    )
    client_cert: str | None = option(None, doc=f"The client's certificate, {_PEM}. Needs `client_key`.")
    client_key: str | None = option(None, doc=f"The client's key, unencrypted, {_PEM}.", secret=True)
    insecure_tls_skip_verify: bool = option(False, doc="Accept any certificate. For tests only.")
    sasl_enabled: bool = option(False, doc="Authenticate with SASL. Needs `sasl_mechanism` and its options.")
    sasl_handshake: bool = option(True, doc="Must be true: librdkafka always sends the SASL handshake.")
    sasl_mechanism: Literal["plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws_msk_iam"] = option(
        "plain", doc="How to authenticate, in upper or lower case."
    )
    sasl_user: str | None = option(None, doc="User name for `PLAIN` and `SCRAM`.")
    sasl_password: str | None = option(None, doc="Password for `PLAIN` and `SCRAM`.", secret=True)
    sasl_client_id: str | None = option(None, doc=_OAUTH + "the client's id.")
    sasl_client_secret: str | None = option(None, doc=_OAUTH + "base64 of the client's secret.", secret=True)
    sasl_token_url: str | None = option(None, doc=_OAUTH + "the URL that issues tokens.")
    sasl_grant_type: str = option("client_credentials", doc=_OAUTH + "must be `client_credentials`.")
    sasl_scopes: tuple[str, ...] = option((), doc=_OAUTH + "the scopes of the token.")
    sasl_aws_region: str | None = option(None, doc="Region of the cluster, for `AWS_MSK_IAM`.")
    sasl_aws_iam_role_arn: str | None = option(None, doc="Role to assume, for `AWS_MSK_IAM`.")
    sasl_aws_iam_session_name: str | None = option(None, doc="Name of the session, for `AWS_MSK_IAM`.")
    api_key: str | None = option(None, doc="API key, for `confluent-cloud://` URIs.")
    api_secret: str | None = option(None, doc="API secret, for `confluent-cloud://` URIs.", secret=True)
    shared_access_key_name: str | None = option(None, doc="Name of the access key, for `azure-event-hub://` URIs.")
    shared_access_key: str | None = option(None, doc="The access key, for `azure-event-hub://` URIs.", secret=True)

    def __post_init__(self) -> None:
        for name in ("topic_partitions", "topic_replication_factor"):
            if getattr(self, name) < 1 and getattr(self, name) != -1:
                raise ValueError(f"option '{name}' must be at least 1, or -1")
        if self.flush_timeout <= 0:
            raise ValueError("option 'flush_timeout' must be more than 0")
        if self.buffer_size < 64 * 1024:
            raise ValueError("option 'buffer_size' must be at least 64KB")
        SinkConfig.of(self.kafka_sink_config)
