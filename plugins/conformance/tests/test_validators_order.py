"""What `OrderValidator`, `VersionValidator`, `CountValidator` and `CutValidator` find."""

from __future__ import annotations

from cdc_conformance.validators import All, CountValidator, CutValidator, OrderValidator, State, VersionValidator
from cdc_testing.seen import feed, mark, row


def test_a_new_row_at_a_resolved_mark_is_found() -> None:
    events = [row("a", 1), mark(5), row("b", 5)]
    assert feed(OrderValidator(), *events) == [
        'topic t key ["b"]: saw new row timestamp 5.0000000000 after 5.0000000000 was resolved'
    ]
    assert feed(OrderValidator(strict=False), *events) == []


def test_a_new_row_at_a_mark_of_its_topic_is_found() -> None:
    assert feed(OrderValidator(), mark(5, topic="t"), row("a", 4), row("a", 4, topic="u")) == [
        'topic t key ["a"]: saw new row timestamp 4.0000000000 after 5.0000000000 was resolved'
    ]


def test_a_smaller_mark_changes_nothing() -> None:
    assert feed(OrderValidator(), mark(5, at=0), mark(3, at=0), row("a", 4, at=0)) == [
        'topic t partition 0 key ["a"]: saw new row timestamp 4.0000000000 after 5.0000000000 was resolved'
    ]


def test_a_key_in_two_partitions_is_found_even_when_it_is_a_repeat() -> None:
    events = [row("a", 1, at=0), row("a", 1, at=1), row("a", 2, at=1), row("a", 3, at=0)]
    assert feed(OrderValidator(), *events) == ['topic t key ["a"]: received on two partitions: 0 and 1'] * 2


def test_moving_keys_are_in_order_in_each_partition() -> None:
    events = [row("a", 1, at=0), row("a", 3, at=0), row("a", 4, at=1), mark(4, at=1), row("a", 2, at=1)]
    assert feed(OrderValidator(moving_keys=True), *events) == [
        'topic t partition 1 key ["a"]: saw new row timestamp 2.0000000000 after 4.0000000000 was seen',
        'topic t partition 1 key ["a"]: saw new row timestamp 2.0000000000 after 4.0000000000 was resolved',
    ]


def test_versions_are_counted_across_partitions() -> None:
    rows = [row("a", 1, {"v": 1}, at=0), row("a", 3, {"v": 3}, at=1)]
    assert feed(VersionValidator("t", "v"), *rows) == ['topic t key ["a"]: versions [2] never arrived']


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


PLACES = [("t", 0), ("t", 1)]


def total_is_ten(state: State) -> str | None:
    total = sum(row["v"] for row in state.get("t", {}).values())
    return None if total == 10 else f"total is {total}"


def test_a_repeat_of_an_older_version_changes_nothing() -> None:
    events = [row("a", 1, {"v": 4}), row("a", 2, {"v": 10}), mark(2), row("a", 1, {"v": 4}), mark(3)]
    assert feed(CutValidator(total_is_ten), *events) == []


def test_the_cut_is_at_the_least_mark_of_all_endpoints() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    events = [
        row("a", 1, {"v": 10}, at=0),
        mark(1, at=0),
        row("a", 2, {"v": 7}, at=0),
        mark(2, at=0),  # the other half of the transaction is in a partition that has no mark yet
        mark(1, at=1),
        row("b", 2, {"v": 3}, at=1),
        mark(2, at=1),
    ]
    assert feed(cut, *events) == []
    cut.note_row(row("a", 2, {"v": 7}, at=0))
    assert (cut.cuts, cut.waiting) == (2, 0), "a repeat does not wait for a cut"
    assert cut.state == {"t": {("a",): {"v": 7}, ("b",): {"v": 3}}}


def test_there_is_no_cut_while_an_endpoint_has_no_mark() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    assert feed(cut, row("a", 1, {"v": 3}, at=0), mark(1, at=0), mark(2, at=0)) == []
    assert (cut.cuts, cut.waiting) == (0, 1)


def test_a_smaller_mark_makes_no_cut() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    marks = [mark(resolved, at=at) for resolved in (5, 3) for at in (0, 1)]
    assert feed(cut, row("a", 1, {"v": 10}, at=0), *marks, row("b", 6, {"v": 1}, at=0)) == []
    assert (cut.cuts, cut.waiting) == (1, 1)


def test_an_unknown_endpoint_is_a_failure() -> None:
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), mark(1, at=2), row("a", 1, {"v": 3}, at=2)) == [
        "topic t partition 2: not among the endpoints",
        "topic t partition 2: not among the endpoints",
    ]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), mark(1)) == ["all topics: not among the endpoints"]


def test_with_every_timestamp_a_transaction_with_two_timestamps_is_found() -> None:
    # rows of a scan may have several ages
    scan = [row("a", 1, {"v": 4}, at=0), row("c", 2, {"v": 6}, at=0), mark(2, at=0), mark(2, at=1)]
    events = [*scan, row("b", 4, {"v": 3}, at=1), row("a", 3, {"v": 1}, at=0), mark(4, at=0), mark(4, at=1)]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), *events) == []
    strict = CutValidator(total_is_ten, endpoints=PLACES, every_timestamp=True)
    assert feed(strict, *events) == ["at 3.0000000000: total is 7"]


def test_rows_of_several_endpoints_are_applied_in_timestamp_order() -> None:
    events = [row("a", 5, {"v": 10}, at=1), row("a", 4, {"v": 1}, at=0), mark(5, at=0), mark(5, at=1)]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), *events) == []
