"""Options of the Kafka sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cdc_core import MB, ByteSize, Duration, option
from cdc_sink_kafka.sink_config import SinkConfig

_PEM = "as PEM text or base64-encoded PEM"
_OAUTH = "For `OAUTHBEARER`: "


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The options about brokers, topics and messages. They may also be parameters of the sink's URI."""

    topic_name: str | None = option(None, doc="Name of one topic for all tables, instead of one topic per table.")
    topic_prefix: str = option("", doc="Prefix of all topic names.")
    create_kafka_topics: Literal["explicit", "auto", "off"] = option(
        "explicit",
        doc="What creates missing topics. `explicit`: the changefeed, before its first row. `auto`: the broker, on the"
        " first message, if its settings allow that. `off`: nothing; a missing topic is an error at startup.",
    )
    topic_partitions: int = option(
        -1, doc="Number of partitions of the topics that the changefeed creates; -1 means the broker's default."
    )
    topic_replication_factor: int = option(
        -1, doc="Replication factor of the topics that the changefeed creates; -1 means the broker's default."
    )
    topic_configs: dict[str, Any] = option(
        None,
        doc='Settings of the topics that the changefeed creates, for example `{"retention.ms": "-1"}`. Do not combine'
        " the `compact` cleanup policy with `resolved`: a compacted topic accepts no message without a key.",
    )
    partition_alg: Literal["murmur2", "fnv-1a"] = option(
        "murmur2",
        doc="Hash function that maps keys to partitions: `murmur2`, as in Kafka's Java clients, or `fnv-1a`, as in"
        " CockroachDB.",
    )
    tombstones_on_delete: bool = option(
        False,
        doc="For each deleted row, write a second message directly after the first, with the row's key and no value. A"
        " compacted topic then removes the key. Has no effect in envelopes whose deletes are already tombstones."
        " Cannot be combined with key_column.",
    )
    kafka_sink_config: dict[str, Any] = option(
        None, doc="Settings for batches, acknowledgements and compression. The sink's README lists the keys."
    )
    buffer_size: ByteSize = option(
        ByteSize(64 * MB),
        doc="Maximum total size of the unacknowledged messages in each writer's buffer. While the buffer is full,"
        " reading from the source pauses. Sets `queue.buffering.max.kbytes` and `queue.buffering.max.messages`.",
    )
    flush_timeout: Duration = option(
        Duration(120.0),
        doc="How long the client keeps retrying while no message is acknowledged. After this time, the step fails and"
        " is repeated.",
    )
    librdkafka: dict[str, Any] = option(
        None,
        doc="Other librdkafka properties, for example `librdkafka.socket.keepalive.enable = true`. Properties that"
        " another option sets are refused.",
    )
    extra_headers: dict[str, Any] = option(
        None, doc='Headers to add to every message, for example `{"origin": "shop"}`.'
    )
    headers_json_column_name: str | None = option(
        None,
        doc="Name of a column of JSON objects whose entries become headers of the row's message. The column is left"
        " out of the message. Every table must have this column.",
    )
    header_updated: str | None = option(
        None, doc="Name of a header that contains the row's commit timestamp, in the format of `updated`."
    )
    header_table: str | None = option(
        None, doc="Name of a header that contains the full name of the row's table, `database.schema.table`."
    )
    tls_enabled: bool = option(False, doc="Encrypt the connection with TLS.")
    ca_cert: str | None = option(None, doc=f"CA certificates to trust, {_PEM}. Default: the system's CA certificates.")
    client_cert: str | None = option(None, doc=f"Client certificate, {_PEM}. Requires `client_key`.")
    client_key: str | None = option(
        None, doc=f"Unencrypted private key of the client certificate, {_PEM}.", secret=True
    )
    insecure_tls_skip_verify: bool = option(False, doc="Accept any certificate. For tests only.")
    sasl_enabled: bool = option(
        False, doc="Authenticate with SASL. Requires the options of the chosen `sasl_mechanism`."
    )
    sasl_handshake: bool = option(True, doc="Must be true: librdkafka always sends the SASL handshake.")
    sasl_mechanism: Literal["plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws_msk_iam"] = option(
        "plain", doc="SASL mechanism, in upper or lower case."
    )
    sasl_user: str | None = option(None, doc="User name for `PLAIN` and `SCRAM`.")
    sasl_password: str | None = option(None, doc="Password for `PLAIN` and `SCRAM`.", secret=True)
    sasl_client_id: str | None = option(None, doc=_OAUTH + "the client ID.")
    sasl_client_secret: str | None = option(None, doc=_OAUTH + "the base64-encoded client secret.", secret=True)
    sasl_token_url: str | None = option(None, doc=_OAUTH + "the URL that issues tokens.")
    sasl_grant_type: str = option("client_credentials", doc=_OAUTH + "must be `client_credentials`.")
    sasl_scopes: tuple[str, ...] = option((), doc=_OAUTH + "the scopes to request for the token.")
    sasl_aws_region: str | None = option(None, doc="AWS region of the cluster, for `AWS_MSK_IAM`.")
    sasl_aws_iam_role_arn: str | None = option(None, doc="Role to assume, for `AWS_MSK_IAM`.")
    sasl_aws_iam_session_name: str | None = option(None, doc="Name of the session, for `AWS_MSK_IAM`.")
    api_key: str | None = option(None, doc="API key, for `confluent-cloud://` URIs.")
    api_secret: str | None = option(None, doc="API secret, for `confluent-cloud://` URIs.", secret=True)
    shared_access_key_name: str | None = option(None, doc="Name of the access key, for `azure-event-hub://` URIs.")
    shared_access_key: str | None = option(None, doc="Access key, for `azure-event-hub://` URIs.", secret=True)

    def __post_init__(self) -> None:
        for name in ("topic_partitions", "topic_replication_factor"):
            if getattr(self, name) < 1 and getattr(self, name) != -1:
                raise ValueError(f"option '{name}' must be at least 1, or -1")
        if self.flush_timeout <= 0:
            raise ValueError("option 'flush_timeout' must be more than 0")
        if self.buffer_size < 64 * 1024:
            raise ValueError("option 'buffer_size' must be at least 64KB")
        SinkConfig.of(self.kafka_sink_config)
