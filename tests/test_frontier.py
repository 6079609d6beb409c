"""The frontier: its mark is the minimum, it never moves back, splits and joins lose no key."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import Frontier, Span, Timestamp

PROBES = [bytes([n]) for n in range(16)]


@st.composite
def forwards(draw: st.DrawFn) -> tuple[Span, Timestamp]:
    start = draw(st.integers(0, 14))
    end = draw(st.none() | st.integers(start + 1, 15))
    span = Span(
        draw(st.sampled_from(["a", "b"])), bytes([start]) if start else b"", None if end is None else bytes([end])
    )
    return span, Timestamp(draw(st.integers(0, 5)), draw(st.integers(0, 1)))


histories = st.lists(forwards(), max_size=12)


def at(frontier: Frontier, table: str, key: bytes) -> list[Timestamp]:
    return [
        timestamp
        for span, timestamp in frontier
        if span.table == table and span.start <= key and (span.end is None or key < span.end)
    ]


@settings(max_examples=40)
@given(histories)
def test_every_key_stands_where_it_was_forwarded_to(history: list[tuple[Span, Timestamp]]) -> None:
    frontier = Frontier([Span("a"), Span("b")])
    model = {(table, key): Timestamp() for table in ("a", "b") for key in PROBES}
    for span, timestamp in history:
        frontier.forward(span, timestamp)
        for table, key in model:
            if table == span.table and span.start <= key and (span.end is None or key < span.end):
                model[table, key] = max(model[table, key], timestamp)
    for (table, key), timestamp in model.items():
        assert at(frontier, table, key) == [timestamp]


@settings(max_examples=40)
@given(histories)
def test_high_water_is_the_minimum_and_never_moves_back(history: list[tuple[Span, Timestamp]]) -> None:
    frontier = Frontier([Span("a"), Span("b")])
    for span, timestamp in history:
        before = frontier.high_water
        frontier.forward(span, timestamp)
        assert frontier.high_water >= before
        assert frontier.high_water == min(stamp for _, stamp in frontier)
        assert frontier.latest == max(stamp for _, stamp in frontier)


@settings(max_examples=40)
@given(histories)
def test_neighbours_at_one_timestamp_are_joined(history: list[tuple[Span, Timestamp]]) -> None:
    frontier = Frontier([Span("a"), Span("b")])
    for span, timestamp in history:
        frontier.forward(span, timestamp)
    entries = list(frontier)
    for (one, stamp), (other, other_stamp) in pairwise(entries):
        assert not (one.table == other.table and one.end == other.start and stamp == other_stamp)
    for table in ("a", "b"):
        frontier.forward(Span(table), Timestamp(9))
    assert list(frontier) == [(Span("a"), Timestamp(9)), (Span("b"), Timestamp(9))]


@settings(max_examples=40)
@given(histories)
def test_json_and_back_is_the_same_frontier(history: list[tuple[Span, Timestamp]]) -> None:
    frontier = Frontier([Span("a"), Span("b")])
    for span, timestamp in history:
        frontier.forward(span, timestamp)
    assert Frontier.from_json(json.loads(json.dumps(frontier.to_json()))) == frontier


def test_forwarding_a_table_compares_it_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    frontier, compared = Frontier(Span(f"t{n}") for n in range(100)), []
    monkeypatch.setattr(Timestamp, "__lt__", lambda one, other: compared.append(one) or one.wall < other.wall)
    for n in range(100):
        frontier.forward(Span(f"t{n}"), Timestamp(3))
    assert len(compared) <= 100
    assert frontier.high_water == Timestamp(3)


def test_keys_that_nobody_watches_are_ignored() -> None:
    frontier = Frontier([Span("a", b"\x05")])
    for table in ("b", "a"):
        frontier.forward(Span(table), Timestamp(3))
    assert list(frontier) == [(Span("a", b"\x05"), Timestamp(3))]


def test_a_frontier_without_spans_has_nothing_resolved() -> None:
    assert Frontier(()).high_water == Timestamp()
    assert Frontier(()).latest == Timestamp()


def test_overlapping_spans_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        Frontier([Span("a"), Span("a", b"\x01")])


@pytest.mark.parametrize(
    "entry", [[None, "", None, "1.0000000000"], ["a", "zz", None, "1.0000000000"], ["a", "", None, "1"]]
)
def test_damaged_json_is_refused(entry: list[str | None]) -> None:
    with pytest.raises(ValueError, match=r"table of a span|hexadecimal|timestamp"):
        Frontier.from_json([entry])


@settings(max_examples=40)
@given(histories, st.integers(0, 14))
def test_a_span_is_as_far_as_the_least_of_its_parts(history: list[tuple[Span, Timestamp]], start: int) -> None:
    frontier = Frontier([Span("a"), Span("b")])
    for span, timestamp in history:
        frontier.forward(span, timestamp)
    asked = Span("a", bytes([start]), bytes([start + 1]))
    assert frontier.of(asked) == min(at(frontier, "a", bytes([start])))
    assert frontier.of(Span("a")) == min(timestamp for span, timestamp in frontier if span.table == "a")


def test_a_span_that_nobody_watches_is_nowhere() -> None:
    assert Frontier([Span("a")], Timestamp(7)).of(Span("b")) == Timestamp()


def test_a_new_table_begins_at_the_high_water_mark_and_a_removed_one_leaves_no_trace() -> None:
    frontier = Frontier([Span("a"), Span("b"), Span("c")])
    for table, wall in (("a", 9), ("b", 5), ("c", 3)):
        frontier.forward(Span(table), Timestamp(wall))
    frontier.forward(Span("a", b"", b"k"), Timestamp(12))
    watching = frontier.watching([Span("a"), Span("b"), Span("d")])
    assert [(span, timestamp.wall) for span, timestamp in watching] == [
        (Span("a", b"", b"k"), 12),
        (Span("a", b"k"), 9),
        (Span("b"), 5),
        (Span("d"), 3),
    ]
    assert frontier.watching([Span("a"), Span("b"), Span("c")]) == frontier
