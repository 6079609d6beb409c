"""What `CutValidator` finds."""

from __future__ import annotations

from cdc_conformance.validators import CutValidator, State
from cdc_testing.seen import feed, mark, row

PLACES = [("t", 0), ("t", 1)]


def total_is_ten(state: State) -> str | None:
    total = sum(row["v"] for row in state.get("t", {}).values())
    return None if total == 10 else f"total is {total}"


def test_rows_are_held_back_until_they_are_resolved() -> None:
    events = [row("a", 1, {"v": 10}), mark(1), row("a", 2, {"v": 7}), mark(1), row("b", 2, {"v": 3}), mark(2)]
    assert feed(CutValidator(total_is_ten), *events) == []


def test_half_a_transaction_is_found() -> None:
    events = [row("a", 1, {"v": 10}), mark(1), row("a", 2, {"v": 7}), mark(2), row("b", 2, {"v": 3})]
    assert feed(CutValidator(total_is_ten), *events) == ["at resolved 2.0000000000: total is 7"]


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


def test_half_a_transaction_after_the_marks_is_found() -> None:
    whole = [row("a", 1, {"v": 10}, at=0), mark(1, at=0), mark(1, at=1)]
    half = [row("a", 2, {"v": 7}, at=0), mark(2, at=0), mark(2, at=1), row("b", 2, {"v": 3}, at=1)]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), *whole, *half) == ["at resolved 2.0000000000: total is 7"]


def test_there_is_no_cut_while_an_endpoint_has_no_mark() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    assert feed(cut, row("a", 1, {"v": 3}, at=0), mark(1, at=0), mark(2, at=0)) == []
    assert (cut.cuts, cut.waiting) == (0, 1)


def test_a_smaller_mark_changes_nothing() -> None:
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
