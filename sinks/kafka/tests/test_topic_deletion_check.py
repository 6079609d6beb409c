"""A topic that is deleted while the changefeed runs stops it, whoever creates it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.topic_deletion_check import TopicDeletionCheck
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows
from confluent_kafka import Uuid
from confluent_kafka.admin import AdminClient

from cdc_core import RetryableSinkError, TerminalSinkError, Timestamp

_SOON_S = 25.0
"""Less than the 30 s after which the client gives up a topic by itself, and less than flush_timeout."""


def awaited(call: Callable[[], object], limit_s: float = 300.0) -> str:
    """Repeat *call* until it raises the TerminalSinkError, and return its text."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            call()
        except TerminalSinkError as error:
            if error.repairable:
                raise AssertionError("the rows of the old topic would be missing without a word") from error
            return str(error)
    raise AssertionError("no error was raised")


def test_a_deleted_topic_is_named_soon_and_does_not_come_back(kafka: KafkaRig) -> None:
    sink = kafka.sink()
    sink.emit(rows([1]))
    sink.flush()
    kafka.delete_topic()
    started = time.monotonic()
    sink.emit(rows([2]))
    with pytest.raises(TerminalSinkError) as failed:
        sink.flush()
    assert time.monotonic() - started < _SOON_S
    assert str(failed.value).startswith(
        f"topic '{kafka.topic}' was deleted while the changefeed was running, and its rows are gone. Create the"
        " topic, then run the changefeed again"
    )
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    assert kafka.topic not in admin.list_topics(timeout=20).topics


def test_a_topic_that_was_deleted_between_two_attempts_is_named_before_any_row(kafka: KafkaRig) -> None:
    sink = kafka.sink()
    kafka.delete_topic()
    with pytest.raises(TerminalSinkError, match=f"topic '{kafka.topic}' was deleted"):
        sink.emit(rows([1]))


@pytest.mark.parametrize("who", ["explicit", "auto", "off"])
def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(who: str, kafka: KafkaRig) -> None:
    kafka.create_topic()
    sink = kafka.sink({"create_kafka_topics": who})
    sink.emit(rows([1]))
    sink.flush()
    kafka.delete_topic()
    kafka.create_topic()

    def write() -> None:
        sink.emit(rows([2]))
        sink.flush()

    error = awaited(write)
    assert error.startswith(f"topic '{kafka.topic}' was deleted and created again while the changefeed was running")
    assert "Run the changefeed again to continue without them" in error
    again = kafka.sink({"create_kafka_topics": who})
    again.emit(rows([3]))
    again.flush()
    assert b"[3]" in [message.key for message in kafka.received()]


def test_marks_are_not_written_to_a_topic_that_was_created_again(kafka: KafkaRig) -> None:
    sink = kafka.resolved_sink()
    sink.emit_resolved(Timestamp(1))
    kafka.delete_topic()
    kafka.create_topic()
    assert "was deleted and created again" in awaited(lambda: sink.emit_resolved(Timestamp(2)))


def test_a_deleted_topic_without_changes_stops_the_marks(kafka: KafkaRig) -> None:
    sink = kafka.resolved_sink()
    sink.emit_resolved(Timestamp(1))
    kafka.delete_topic()

    def mark() -> None:
        try:
            sink.emit_resolved(Timestamp(2))
        except RetryableSinkError as error:
            raise AssertionError(f"not named: {error}") from error

    assert f"topic '{kafka.topic}' was deleted" in awaited(mark)


class Upgraded:
    """Settings and administrator of brokers whose answers are given: no broker here changes its version."""

    options = KafkaOptions()
    topic_names: tuple[str, ...] = ("t",)

    def __init__(self) -> None:
        self.answer: str | None = None

    def administrator(self) -> Upgraded:
        return self

    def topic_ids(self, topics: tuple[str, ...]) -> dict[str, str | None]:
        return dict.fromkeys(topics, self.answer)


def test_brokers_that_begin_to_tell_ids_do_not_end_the_changefeed() -> None:
    brokers = Upgraded()
    watched = TopicDeletionCheck(cast(Any, brokers))
    none, first, second = (str(Uuid(0, number)) for number in range(3))
    for answer in (none, none, first, none, first):
        brokers.answer = answer
        watched.check(now=True)
    brokers.answer = second
    with pytest.raises(TerminalSinkError, match="topic 't' was deleted and created again"):
        watched.check(now=True)


def test_a_topic_of_an_earlier_run_that_is_missing_is_not_said_to_be_deleted_during_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cdc_sink_kafka.topic_deletion_check._SURE_AFTER_S", 0.0)
    monkeypatch.setattr("cdc_sink_kafka.topic_deletion_check._ASK_S", 0.0)
    brokers = Upgraded()
    brokers.topic_names = ()
    watched = TopicDeletionCheck(cast(Any, brokers))
    watched.add(["old"], seen=False)
    told = r"^topic 'old' does not exist, although the changefeed has written to it, .* Create the topic, then run"
    with pytest.raises(TerminalSinkError, match=told):
        watched.check(now=True)
    brokers.answer = str(Uuid(0, 1))
    watched.check(now=True)
    brokers.answer = None
    with pytest.raises(TerminalSinkError, match="topic 'old' was deleted while the changefeed was running"):
        watched.check(now=True)
