"""`CountValidator` counts events, and fails if there are too few."""

from __future__ import annotations

from cdc_conformance.validators import All, CountValidator, OrderValidator
from cdc_testing.seen import feed, mark, row


def test_rows_repeats_and_marks_are_counted() -> None:
    count = CountValidator()
    feed(count, row("a", 1), row("a", 1), row("b", 2), mark(1), mark(1), row("c", 3), mark(2), row("a", 1), mark(2))
    assert (count.rows, count.repeats, count.marks) == (5, 2, 4)
    assert (count.resolved_rows, count.marks_with_rows) == (4, 3)
    assert count.failures() == []


def test_a_mark_covers_the_rows_of_its_own_partition() -> None:
    count = CountValidator()
    feed(count, row("a", 1, at=0), row("b", 1, at=1), mark(1, at=0))
    assert (count.resolved_rows, count.marks_with_rows) == (1, 1)


def test_too_few_events_are_a_failure() -> None:
    assert feed(CountValidator(least_rows=2, least_marks=1), row("a", 1)) == [
        "1 rows arrived, expected at least 2",
        "0 resolved marks arrived, expected at least 1",
    ]


def test_the_failures_of_several_validators_are_combined() -> None:
    both = All([CountValidator(least_marks=2), OrderValidator()])
    assert feed(both, row("a", 1), mark(1), row("b", 1)) == [
        "1 resolved marks arrived, expected at least 2",
        'topic t key ["b"]: saw new row timestamp 1.0000000000 after 1.0000000000 was resolved',
    ]
