"""What a Kafka consumer read reaches the validators as it came: by partition, in order, and nothing is passed over."""

from __future__ import annotations

import json

import pytest
from cdc_conformance.validators import CutValidator, OrderValidator, Validator, VersionValidator
from cdc_testing.kafka_reading import Message
from cdc_testing.kafka_validation import validate_kafka

from cdc_core import Timestamp

PLACES = [("t", 0), ("t", 1)]


def row(partition: int, key: str, updated: int, value: int | None, *, topic: str = "x_t") -> Message:
    after = None if value is None else {"v": value}
    body = json.dumps({"after": after, "updated": str(Timestamp(updated))}).encode()
    return Message(topic, partition, 0, json.dumps([key]).encode(), body, (), 0)


def mark(partition: int, resolved: int) -> Message:
    return Message("x_t", partition, 0, None, json.dumps({"resolved": str(Timestamp(resolved))}).encode(), (), 0)


def failures(*messages: Message) -> list[str]:
    def ten(state: object) -> str | None:
        assert isinstance(state, dict)
        total = sum(row["v"] for row in state["t"].values())
        return None if total == 10 else f"total is {total}"

    validators: list[Validator] = [OrderValidator(), CutValidator(ten, endpoints=PLACES), VersionValidator("t", "v")]
    validate_kafka(messages, validators, prefix="x_")
    return [failure for validator in validators[:2] for failure in validator.failures()]


def test_a_whole_history_has_no_failure_however_partitions_are_interleaved() -> None:
    first = [row(0, "a", 1, 4), mark(0, 1), row(0, "a", 2, 5), row(0, "a", 2, 5), mark(0, 2), mark(0, 3)]
    second = [row(1, "b", 1, 6), mark(1, 1), row(1, "b", 2, None), row(1, "c", 2, 5), mark(1, 2), mark(1, 3)]
    for messages in (
        [*first, *second],
        [*second, *first],
        [m for pair in zip(first, second, strict=True) for m in pair],
    ):
        assert failures(*messages) == []


def test_rows_and_marks_are_counted_by_partition() -> None:
    arrived = validate_kafka([row(0, "a", 1, 4), row(0, "b", 1, 4), row(1, "c", 1, 4), mark(1, 1)], [], prefix="x_")
    assert (arrived.rows, arrived.marks) == ({("t", 0): 2, ("t", 1): 1}, {("t", 1): 1})


def test_a_row_below_a_mark_of_its_partition_is_found() -> None:
    assert failures(mark(1, 1), row(1, "a", 1, 10)) == [
        'topic t partition 1 key ["a"]: saw new row timestamp 1.0000000000 after 1.0000000000 was resolved'
    ]


def test_a_key_in_two_partitions_is_found() -> None:
    assert failures(row(0, "a", 1, 10), row(1, "a", 2, 10)) == [
        'topic t key ["a"]: received on two partitions: 0 and 1'
    ]


def test_a_key_in_other_words_is_the_same_key() -> None:
    same = Message("x_t", 1, 0, b'[ "\\u0061" ]', row(1, "a", 2, 1).value, (), 0)
    assert failures(row(0, "a", 1, 10), same) == ['topic t key ["a"]: received on two partitions: 0 and 1']


def test_half_a_transaction_below_all_marks_is_found() -> None:
    assert failures(row(0, "a", 1, 10), mark(0, 1), mark(1, 1), row(0, "a", 2, 7), mark(1, 2), mark(0, 2)) == [
        "at resolved 2.0000000000: total is 7"
    ]


def test_a_partition_that_nobody_named_is_found() -> None:
    assert failures(mark(2, 1)) == ["topic t partition 2: not among the endpoints to be cut"]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (Message("x_t", 0, 0, b'["a"]', None, (), 0), "a tombstone"),
        (Message("x_t", 0, 0, None, b'{"after": null}', (), 0), "no resolved mark"),
        (row(0, "a", 1, 1, topic="y_t"), "does not begin with x_"),
    ],
    ids=["tombstone", "no key", "other topic"],
)
def test_a_message_that_is_neither_row_nor_mark_is_refused(message: Message, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        failures(message)
