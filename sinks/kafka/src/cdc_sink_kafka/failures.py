"""What a failure of the client means for the changefeed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from cdc_core import CdcError, RefusedRowsError, RetryableSinkError, TerminalSinkError

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE)
_CONSEQUENCES = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
_SASL = "check the sasl options"
_REPAIRS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user the rights Describe and Write on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user IdempotentWrite on the cluster, or Write on the topic",
    KafkaError.POLICY_VIOLATION: "check the broker's policies",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "upgrade the topic's message format",
    KafkaError.INVALID_TIMESTAMP: (
        "correct this machine's clock, or raise the topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms"
    ),
    KafkaError.SECURITY_DISABLED: "enable security on the broker",
    KafkaError.SASL_AUTHENTICATION_FAILED: _SASL,
    KafkaError._AUTHENTICATION: _SASL,
    KafkaError._SSL: "check ca_cert, client_cert and the names in the brokers' certificates",
}
"""What someone repairs elsewhere: the same message is accepted after that."""
_REMEDIES = {
    **_REPAIRS,
    KafkaError.TOPIC_EXCEPTION: "choose another topic",
    KafkaError.INVALID_RECORD: (
        "a topic with cleanup.policy=compact accepts no message without a key, such as a resolved mark: change that "
        "setting, or remove the option resolved"
    ),
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "choose another Compression in kafka_sink_config",
    KafkaError.INVALID_REQUIRED_ACKS: "choose another RequiredAcks in kafka_sink_config",
}
_ALERT = re.compile(r"SSL alert number (?!80\b)")
"""TLS 1.3 refuses a client certificate after the handshake. Number 80 is an internal error."""
_PASSES = re.compile(r"timed out|could(n't| not) (connect|resolve)|failed to connect|connection|empty reply", re.I)
"""What is not a refusal: a broker that is slow, a provider of tokens that is out of reach or busy."""
_NO_TOPIC = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
_REFUSED_BATCH = re.compile(r"ProduceRequest for (\S+) \[(\d+)\] with (\d+) message\(s\) failed: (.*?)(?: \(broker|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A message, or a batch of `messages`, that was not delivered. `messages` is 0 when the number is not known."""

    code: int
    reason: str
    topic: str = ""
    messages: int = 0
    key: bytes | None = None

    @classmethod
    def of_report(cls, error: KafkaError, message: Message) -> Self:
        """Return the failure in a delivery report."""
        return cls(code=error.code(), reason=error.str(), topic=message.topic() or "", key=message.key())

    @classmethod
    def of_client(cls, error: KafkaError) -> Self:
        """Return the failure in an error of the whole client.

        The gapless guarantee lets no message follow a failed batch: it ends the client with an error of its own. The
        text of that error names the batch and the broker's reason. The delivery report of the message may never come.
        """
        found = _REFUSED_BATCH.search(error.str())
        if error.code() != KafkaError._GAPLESS_GUARANTEE or found is None:
            return cls(code=error.code(), reason=error.str())
        topic, _, messages, reason = found.groups()
        known = (*_TOO_LARGE, *_REMEDIES)
        code = next((code for code in known if KafkaError(code).str() == reason), error.code())
        return cls(code=code, reason=reason, topic=topic, messages=int(messages))

    @property
    def too_large(self) -> bool:
        """Whether the size is the reason."""
        return self.code in _TOO_LARGE

    @property
    def no_topic(self) -> bool:
        """Whether the topic, or a partition that it had, does not exist."""
        return self.code in _NO_TOPIC

    @property
    def timed_out(self) -> bool:
        """Whether brokers are connected, for all that is known, but acknowledge nothing."""
        return self.code == KafkaError._TIMED_OUT

    @property
    def consequence(self) -> bool:
        """Whether it only follows from another failure."""
        return self.code in _CONSEQUENCES


def sink_error(failure: Failure, what: str) -> CdcError:
    """Return the error to raise for *failure*. *what* begins the sentence and says what did not happen."""
    if failure.no_topic:
        return RetryableSinkError(
            f"{what}: topic '{failure.topic}' or one of its partitions does not exist; create it, or set"
            " create_kafka_topics to explicit",
            outage=False,
        )
    remedy = _REMEDIES.get(failure.code)
    if remedy is not None:
        return TerminalSinkError(f"{what}: {failure.reason}; {remedy}", repairable=failure.code in _REPAIRS)
    return RetryableSinkError(f"{what}: {failure.reason}")


@contextmanager
def opening(kind: type[CdcError]) -> Iterator[None]:
    """Raise *kind* for properties that the client refuses. A file that it cannot read may be repaired."""
    try:
        yield
    except KafkaException as error:
        reason = re.sub(r"^Failed to create [a-z ]+: ", "", error.args[0].str())
        unread = ".location failed" in reason
        remedy = "; the file must be readable on every host that runs the changefeed" if unread else ""
        raise kind(f"sink 'kafka': librdkafka refuses the properties: {reason}{remedy}", repairable=unread) from None


def refusal_remedy(code: int, reason: str) -> str | None:
    """Return the remedy for a connection that a broker refuses, None for one that may succeed later."""
    if _PASSES.search(reason):
        return None
    if _ALERT.search(reason):
        code = KafkaError._SSL
    return _REPAIRS.get(code)


def refused_rows(failure: Failure) -> RefusedRowsError | None:
    """Return the error for a broker that refuses a message for its content, None for any other *failure*.

    The broker wrote nothing of the message's batch. The client does not say which message of the batch it was.
    """
    if failure.code != KafkaError.INVALID_RECORD:
        return None
    return RefusedRowsError(
        f"topic '{failure.topic}' refuses a message because of its content: {failure.reason}; a topic with "
        "cleanup.policy=compact accepts no message without a key, and a broker may check messages against a schema"
    )
