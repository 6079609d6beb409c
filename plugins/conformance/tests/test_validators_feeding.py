"""`validate` feeds all messages of a reader to the validators, in order and by endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cdc_conformance.validators import (
    CutValidator,
    OrderValidator,
    SeenRow,
    State,
    TopicValidator,
    Validator,
    VersionValidator,
    events,
    validate,
)
from cdc_testing.decoders import KEYED, json_decoder

from cdc_core import StoredMessage, Timestamp

PLACES = [("t", 0), ("t", 1)]
SCHEMAS = {"t": KEYED}


def row(
    partition: int, key: int, updated: int, value: int | None, *, topic: str = "x_t", also: Any = None
) -> StoredMessage:
    after = None if value is None else {"v": value}
    body = json.dumps({"after": after, "updated": str(Timestamp(updated)), **(also or {})}).encode()
    return StoredMessage(topic=topic, partition=partition, key=json.dumps([key]).encode(), value=body)


def mark(partition: int | None, resolved: int, *, topic: str | None = "x_t") -> StoredMessage:
    body = json.dumps({"resolved": str(Timestamp(resolved))}).encode()
    return StoredMessage(topic=topic, partition=partition, value=body)


def failures(*messages: StoredMessage) -> list[str]:
    def ten(state: State) -> str | None:
        total = sum(row["v"] for row in state["t"].values())
        return None if total == 10 else f"total is {total}"

    validators: list[Validator] = [OrderValidator(), CutValidator(ten, endpoints=PLACES), VersionValidator("t", "v")]
    validate(messages, json_decoder(), SCHEMAS, validators, prefix="x_")
    return [failure for validator in validators[:2] for failure in validator.failures()]


def test_a_correct_history_has_no_failure_in_any_interleaving() -> None:
    first = [row(0, 1, 1, 4), mark(0, 1), row(0, 1, 2, 5), row(0, 1, 2, 5), mark(0, 2), mark(0, 3)]
    second = [row(1, 2, 1, 6), mark(1, 1), row(1, 2, 2, None), row(1, 3, 2, 5), mark(1, 2), mark(1, 3)]
    for messages in (
        [*first, *second],
        [*second, *first],
        [m for pair in zip(first, second, strict=True) for m in pair],
    ):
        assert failures(*messages) == []


def test_rows_and_marks_are_counted_by_endpoint() -> None:
    messages = [row(0, 1, 1, 4), row(0, 2, 1, 4), row(1, 3, 1, 4), mark(1, 1)]
    arrived = validate(messages, json_decoder(), SCHEMAS, [], prefix="x_")
    assert (arrived.rows, arrived.marks) == ({("t", 0): 2, ("t", 1): 1}, {("t", 1): 1})


def test_files_yield_all_their_rows_and_marks_cover_all_topics() -> None:
    body = b"".join((row(0, key, 1, key, also={"key": [key]}).value or b"") + b"\n" for key in (1, 2))
    messages = [StoredMessage(topic="t", value=body), mark(None, 1, topic=None), mark(None, 2, topic="t")]
    order = OrderValidator()
    arrived = validate(messages, json_decoder(output="files"), SCHEMAS, [order])
    assert (arrived.rows, arrived.marks) == ({("t", None): 2}, {(None, None): 1, ("t", None): 1})
    assert order.failures() == []


def test_equal_keys_with_other_spellings_are_one_key() -> None:
    same = StoredMessage(topic="x_t", partition=1, key=b"[ 1 ]", value=row(1, 1, 2, 1).value)
    assert failures(row(0, 1, 1, 10), same) == ["topic t key [1]: received on two partitions: 0 and 1"]


def test_all_fields_of_a_message_arrive() -> None:
    said = {"before": {"v": 3}, "mvcc_timestamp": str(Timestamp(4)), "key": [1], "topic": "x_t"}
    (seen,) = events([row(0, 1, 5, 4, also=said)], json_decoder(), SCHEMAS, prefix="x_")
    assert seen == SeenRow(
        topic="t",
        partition=0,
        key=(1,),
        after={"v": 4},
        before={"v": 3},
        updated=Timestamp(5),
        mvcc=Timestamp(4),
        key_in_value=(1,),
        topic_in_value="t",
    )


def test_a_topic_in_the_value_without_the_prefix_is_found() -> None:
    topic = TopicValidator(["t"], in_value=True)
    body = json.dumps({"after": None, "updated": str(Timestamp(5)), "topic": "t"}).encode()
    message = StoredMessage(topic="x_t", partition=0, key=b"[1]", value=body)
    validate([message], json_decoder(), SCHEMAS, [topic], prefix="x_")
    assert topic.failures() == [
        "topic t partition 0 key [1] updated 5.0000000000: the topic in its value is t, without the prefix x_"
    ]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (StoredMessage(topic="x_t", partition=0, key=b"[1]", value=None), "has no 'updated'"),
        (StoredMessage(topic="x_t", partition=0, value=b'{"after": null, "updated": "1.0000000000"}'), "has no key"),
        (StoredMessage(topic=None, value=b'{"after": null}'), "all topics: .* must be a resolved mark"),
        (row(0, 1, 1, 1, topic="y_t"), "topic y_t partition 0: does not begin with the prefix x_"),
        (row(0, 1, 1, 1, topic="x_u"), r"topic x_u partition 0: no table .* has this topic; the topics are \['t'\]"),
    ],
    ids=["tombstone", "no key", "no topic", "other prefix", "other topic"],
)
def test_a_message_that_is_neither_row_nor_mark_is_refused(message: StoredMessage, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        failures(message)
