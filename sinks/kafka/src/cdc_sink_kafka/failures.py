"""What a failure of the client means for the changefeed."""

from __future__ import annotations

from confluent_kafka import KafkaError

from cdc_core.errors import CdcError, RetryableSinkError, TerminalSinkError

__all__ = ["TOO_LARGE", "is_consequence", "sink_error"]

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
"""The broker, or the client itself, refuses a batch for its size."""

_CONSEQUENCES = frozenset(
    {KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
)
_REMEDIES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user the right to write to the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user IdempotentWrite on the cluster, or write on the topic",
    KafkaError.TOPIC_EXCEPTION: "choose another topic",
    KafkaError.INVALID_RECORD: "check the topic's settings, a compacted topic takes no message without a key",
    KafkaError.POLICY_VIOLATION: "check the broker's policies",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "choose another Compression in kafka_sink_config",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise the topic's message format",
    KafkaError.INVALID_REQUIRED_ACKS: "choose another RequiredAcks in kafka_sink_config",
    KafkaError.SECURITY_DISABLED: "enable security on the broker",
}


def is_consequence(error: KafkaError) -> bool:
    """Return whether *error* only says that another message failed before."""
    return error.code() in _CONSEQUENCES


def sink_error(error: KafkaError, what: str) -> CdcError:
    """Return the error to raise when *what*, the beginning of a sentence, came to nothing because of *error*."""
    remedy = _REMEDIES.get(error.code())
    if remedy is not None:
        return TerminalSinkError(f"{what}: {error.str()}; {remedy}")
    return RetryableSinkError(f"{what}: {error.str()}")
