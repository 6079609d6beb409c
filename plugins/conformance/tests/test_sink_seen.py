"""What a consumer saw is judged right: rows missing, repeated and out of order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_conformance.sinks.seen import Row, Seen, SeenMessage, rows_of

from cdc_core import Endpoint, Timestamp


def row(key: int, at: int) -> Row:
    return Row(topic="t", key=(key,), updated=Timestamp(at))


def seen(*found: tuple[int, int], place: Endpoint = ("t", 0)) -> Seen:
    return Seen(SeenMessage(place=place, row=row(key, at)) for key, at in found)


def test_rows_are_known_by_topic_key_and_time() -> None:
    batch = rows(table("t", {"id": INT8}), [Change({"id": 1}), Change({"id": 2}, updated=Timestamp(7, 3))])
    assert rows_of(batch, topic="t")[1] == Row(topic="t", key=(2,), updated=Timestamp(7, 3))


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([], ""),
        ([(1, 1), (1, 2), (2, 1)], ""),
        ([(1, 1), (1, 2), (1, 1), (1, 2), (1, 3)], ""),  # a repetition from an earlier point
        ([(1, 2), (1, 1)], "the row of topic 't' with key (1,) updated 1.0000000000 stands behind"),
        ([(1, 1), (1, 3), (1, 1), (1, 2)], "the row of topic 't' with key (1,) updated 2.0000000000 stands behind"),
    ],
)
def test_an_older_version_may_follow_only_when_it_was_there_before(
    found: Sequence[tuple[int, int]], fault: str
) -> None:
    assert seen(*found).out_of_order().startswith(fault)
    assert bool(seen(*found).out_of_order()) == bool(fault)


def test_places_have_no_order_among_each_other() -> None:
    both = Seen([*seen((1, 2)).messages, *seen((1, 1), place=("t", 1)).messages])
    assert both.out_of_order() == ""
    assert [message.row for message in both.at(("t", 1))] == [row(1, 1)]
    assert len(both.at((None, None))) == 2


def test_missing_and_repeated_rows_are_named() -> None:
    found = seen((1, 1), (2, 1), (1, 1))
    assert found.missing([row(1, 1), row(2, 1)]) == ""
    assert found.missing([row(3, 1), row(1, 1)]).startswith("1 rows are not there, the first is the row of topic 't'")
    assert found.repeated() == f"{row(1, 1)} is there 2 times"
    assert seen((1, 1), (1, 2)).repeated() == ""


def test_what_was_never_given_is_told_along_with_what_is_missing() -> None:
    found = Seen([SeenMessage(place=("t", 0), text="key b'1' value b'cut'")])
    assert found.missing([row(1, 1)]).endswith("what is there and was never given: key b'1' value b'cut'")
    assert found.strange == list(found.messages)
