from __future__ import annotations

import time

import pytest
from cdc_sink_kafka.partitions import Partitions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import table_name

from cdc_core import TerminalSinkError, Timestamp


def test_one_topic_for_all_tables_gets_each_mark_once(kafka: KafkaRig) -> None:
    tables = (table_name("a"), table_name("b"))
    kafka.resolved_sink({"topic_name": "orders", "topic_partitions": "1"}, tables=tables).emit_resolved(Timestamp(5))
    assert [message.key for message in kafka.received()] == [None]


@pytest.mark.parametrize("acks", ["ONE", "NONE"])
def test_weaker_acknowledgement_is_possible(acks: str, kafka: KafkaRig) -> None:
    kafka.resolved_sink({"kafka_sink_config": {"RequiredAcks": acks}}).emit_resolved(Timestamp(9))
    deadline = time.monotonic() + 300
    while len(messages := kafka.received()) < 3 and acks == "NONE":  # no acknowledgement says when they arrive
        assert time.monotonic() < deadline
    assert [message.partition for message in messages] == [0, 1, 2]


@pytest.mark.slow
def test_many_topics_are_looked_up_with_one_request(kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    ask = Partitions._ask

    def counted(partitions: Partitions, topic: str | None) -> dict[str, list[int]]:
        asked.append(topic)
        return ask(partitions, topic)

    tables = tuple(table_name(f"t{number}") for number in range(20))
    sink = kafka.resolved_sink({"topic_partitions": "2"}, tables=tables)
    monkeypatch.setattr(Partitions, "_ask", counted)
    sink.emit_resolved(Timestamp(1))
    assert asked == [None]
    assert all(len(kafka.received(f"{kafka.prefix}t{number}")) == 2 for number in range(20))


def test_a_partition_added_during_a_run_gets_the_next_mark(kafka: KafkaRig) -> None:
    sink = kafka.resolved_sink({"topic_partitions": "2"})
    sink.emit_resolved(Timestamp(1))
    for total in range(3, 8):
        kafka.add_partitions(total)
        sink.emit_resolved(Timestamp(total))
    marks: dict[int, list[bytes]] = {}
    for message in kafka.received():
        marks.setdefault(message.partition, []).append(message.value or b"")
    newest = str(Timestamp(7)).encode()
    assert sorted(marks) == list(range(7))
    assert all(newest in partition[-1] for partition in marks.values())
    assert [len(marks[partition]) for partition in range(7)] == [6, 6, 5, 4, 3, 2, 1]


def test_a_partition_added_to_one_of_many_topics_gets_marks_within_seconds(kafka: KafkaRig) -> None:
    tables = tuple(table_name(name) for name in ("orders", *(f"t{number}" for number in range(20))))
    sink = kafka.resolved_sink({"topic_partitions": "1"}, tables=tables)
    sink.emit_resolved(Timestamp(1))
    kafka.add_partitions(2)
    deadline = time.monotonic() + 300
    while not any(message.partition == 1 for message in kafka.received()):
        assert time.monotonic() < deadline
        sink.emit_resolved(Timestamp(2))


def test_a_compacted_topic_refuses_marks_in_one_sentence(kafka: KafkaRig) -> None:
    kafka.create_topic(1, cleanup_policy="compact")
    with pytest.raises(TerminalSinkError) as refused:
        kafka.resolved_sink().emit_resolved(Timestamp(1))
    text = str(refused.value)
    assert text.startswith("1 message was not delivered to Kafka")
    assert text.endswith(
        "a topic with cleanup.policy=compact accepts no message without a key, such as a resolved mark: change that "
        "setting, or remove the option resolved"
    )
