"""`Seen` finds rows that are missing, repeated or out of order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_conformance.sinks.seen import Row, Seen, SeenMessage, rows_of

from cdc_core import Endpoint, Timestamp


def row(key: int, at: int) -> Row:
    return Row(topic="t", key=(key,), updated=Timestamp(at))


def seen(*found: tuple[int, int], endpoint: Endpoint = ("t", 0)) -> Seen:
    return Seen(SeenMessage(endpoint=endpoint, row=row(key, at)) for key, at in found)


def test_rows_are_identified_by_topic_key_and_time() -> None:
    batch = rows(table("t", {"id": INT8}), [Change({"id": 1}), Change({"id": 2}, updated=Timestamp(7, 3))])
    assert rows_of(batch, topic="t")[1] == Row(topic="t", key=(2,), updated=Timestamp(7, 3))


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([], ""),
        ([(1, 1), (1, 2), (2, 1)], ""),
        ([(1, 1), (1, 2), (1, 1), (1, 2), (1, 3)], ""),  # a repetition from an earlier point
        ([(1, 2), (1, 1)], "the row of topic 't' with key (1,) updated 1.0000000000 comes after"),
        ([(1, 1), (1, 3), (1, 1), (1, 2)], "the row of topic 't' with key (1,) updated 2.0000000000 comes after"),
    ],
)
def test_an_older_version_may_follow_only_when_it_was_there_before(
    found: Sequence[tuple[int, int]], fault: str
) -> None:
    assert seen(*found).out_of_order().startswith(fault)
    assert bool(seen(*found).out_of_order()) == bool(fault)


def test_endpoints_have_no_common_order() -> None:
    both = Seen([*seen((1, 2)).messages, *seen((1, 1), endpoint=("t", 1)).messages])
    assert both.out_of_order() == ""
    assert [message.row for message in both.at(("t", 1))] == [row(1, 1)]
    assert len(both.at((None, None))) == 2


def test_missing_and_repeated_rows_are_named() -> None:
    found = seen((1, 1), (2, 1), (1, 1))
    assert found.missing([row(1, 1), row(2, 1)]) == ""
    assert found.missing([row(3, 1), row(1, 1)]).startswith("1 of 2 rows are missing, the first is the row of")
    assert found.repeated() == f"{row(1, 1)} is there 2 times"
    assert seen((1, 1), (1, 2)).repeated() == ""


def test_missing_rows_are_reported_with_something_that_was_never_emitted() -> None:
    found = Seen([SeenMessage(endpoint=("t", 0), text="key b'1' value b'cut'")])
    assert found.missing([row(1, 1)]).endswith("something that was never emitted is there: key b'1' value b'cut'")
    assert found.unknown == list(found.messages)
