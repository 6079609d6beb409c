"""The validators themselves: each finds exactly what it is for."""

from __future__ import annotations

from cdc_testing.validators import CutValidator, OrderValidator, Validator, VersionValidator

from cdc_core import Timestamp


def feed(validator: Validator, *events: tuple[str, int] | tuple[str, int, dict[str, int] | None]) -> list[str]:
    """Feed rows as (key, updated, after) of topic t and marks as ("resolved", timestamp)."""
    for event in events:
        if event[0] == "resolved":
            validator.note_resolved(Timestamp(event[1]))
        else:
            validator.note_row("t", event[0], event[2] if len(event) == 3 else {}, Timestamp(event[1]))
    return validator.failures()


def test_order_accepts_repeats_with_gaps() -> None:
    assert feed(OrderValidator(), ("a", 1), ("a", 2), ("a", 3), ("a", 2), ("a", 4), ("resolved", 4), ("a", 1)) == []


def test_order_finds_a_new_version_after_a_later_one() -> None:
    assert feed(OrderValidator(), ("a", 1), ("a", 3), ("b", 1), ("a", 2)) == [
        "topic t key a: saw new row timestamp 2.0000000000 after 3.0000000000 was seen"
    ]


def test_order_finds_a_new_row_at_a_resolved_mark() -> None:
    assert feed(OrderValidator(), ("a", 1), ("resolved", 5), ("b", 5)) == [
        "topic t key b: saw new row timestamp 5.0000000000 after 5.0000000000 was resolved"
    ]


def test_versions_finds_the_one_that_never_arrived() -> None:
    rows = [("a", n, {"v": n}) for n in (3, 4, 6, 5, 8)]
    assert feed(VersionValidator("t", "v"), *rows) == ["topic t key a: versions [7] never arrived"]


def test_versions_accepts_repeats_and_deletes() -> None:
    assert (
        feed(VersionValidator("t", "v"), ("a", 1, {"v": 1}), ("a", 2, {"v": 2}), ("a", 1, {"v": 1}), ("a", 3, None))
        == []
    )


def total_is_ten(state: object) -> str | None:
    assert isinstance(state, dict)
    total = sum(row["v"] for row in state.get("t", {}).values())
    return None if total == 10 else f"total is {total}"


def test_cut_holds_rows_back_until_they_are_resolved() -> None:
    events = [
        ("a", 1, {"v": 10}),
        ("resolved", 1),
        ("a", 2, {"v": 7}),
        ("resolved", 1),
        ("b", 2, {"v": 3}),
        ("resolved", 2),
    ]
    assert feed(CutValidator(total_is_ten), *events) == []  # type: ignore[arg-type]


def test_cut_finds_half_a_transaction() -> None:
    events = [("a", 1, {"v": 10}), ("resolved", 1), ("a", 2, {"v": 7}), ("resolved", 2), ("b", 2, {"v": 3})]
    assert feed(CutValidator(total_is_ten), *events) == [  # type: ignore[arg-type]
        "at resolved 2.0000000000: total is 7"
    ]


def test_cut_ignores_a_repeat_of_an_older_version() -> None:
    events = [("a", 1, {"v": 4}), ("a", 2, {"v": 10}), ("resolved", 2), ("a", 1, {"v": 4}), ("resolved", 3)]
    assert feed(CutValidator(total_is_ten), *events) == []  # type: ignore[arg-type]


PLACES = [("t", 0), ("t", 1)]


def feed_partitions(
    validator: Validator, *events: tuple[int, int] | tuple[int, str, int] | tuple[int, str, int, dict[str, int] | None]
) -> list[str]:
    """Feed rows as (partition, key, updated, after) of topic t, and marks as (partition, timestamp)."""
    for event in events:
        if len(event) == 2:
            validator.note_resolved(Timestamp(event[1]), topic="t", partition=event[0])
        else:
            after = event[3] if len(event) == 4 else {}
            validator.note_row("t", event[1], after, Timestamp(event[2]), partition=event[0])
    return validator.failures()


def test_order_takes_a_mark_for_its_own_partition_only() -> None:
    assert feed_partitions(OrderValidator(), (0, "a", 1), (0, 5), (1, "b", 3), (1, 5), (0, "a", 6)) == []


def test_order_finds_a_new_row_at_a_mark_of_its_partition() -> None:
    assert feed_partitions(OrderValidator(), (1, 9), (0, "a", 1), (0, 5), (0, "c", 5)) == [
        "topic t partition 0 key c: saw new row timestamp 5.0000000000 after 5.0000000000 was resolved"
    ]


def test_order_finds_a_new_version_after_a_later_one_in_a_partition() -> None:
    assert feed_partitions(OrderValidator(), (1, "a", 3), (1, "a", 2)) == [
        "topic t partition 1 key a: saw new row timestamp 2.0000000000 after 3.0000000000 was seen"
    ]


def test_order_does_not_take_a_smaller_mark_back() -> None:
    assert feed_partitions(OrderValidator(), (0, 5), (0, 3), (0, "a", 4)) == [
        "topic t partition 0 key a: saw new row timestamp 4.0000000000 after 5.0000000000 was resolved"
    ]


def test_order_finds_a_key_in_two_partitions_even_when_it_is_a_repeat() -> None:
    assert feed_partitions(OrderValidator(), (0, "a", 1), (1, "a", 1), (1, "a", 2), (0, "a", 3)) == [
        "topic t key a: received on two partitions: 0 and 1",
        "topic t key a: received on two partitions: 0 and 1",
    ]


def test_order_of_keys_that_may_move_is_that_of_each_partition() -> None:
    events = [(0, "a", 1), (0, "a", 3), (1, "a", 4), (1, 4), (1, "a", 2)]
    assert feed_partitions(OrderValidator(moving_keys=True), *events) == [  # type: ignore[arg-type]
        "topic t partition 1 key a: saw new row timestamp 2.0000000000 after 4.0000000000 was seen",
        "topic t partition 1 key a: saw new row timestamp 2.0000000000 after 4.0000000000 was resolved",
    ]


def test_order_tells_topics_apart() -> None:
    order = OrderValidator()
    order.note_resolved(Timestamp(5), topic="t", partition=0)
    order.note_row("u", "a", {}, Timestamp(1), partition=0)
    order.note_row("t", "a", {}, Timestamp(6), partition=1)
    assert order.failures() == []


def test_versions_counts_over_partitions() -> None:
    events = [(0, "a", 1, {"v": 1}), (1, "a", 3, {"v": 3})]
    assert feed_partitions(VersionValidator("t", "v"), *events) == ["topic t key a: versions [2] never arrived"]


def test_cut_is_at_the_least_mark_of_all_partitions() -> None:
    cut = CutValidator(total_is_ten, partitions=PLACES)
    events = [
        (0, "a", 1, {"v": 10}),
        (0, 1),
        (0, "a", 2, {"v": 7}),
        (0, 2),  # the other half of the transaction is in a partition that has no mark yet
        (1, 1),
        (1, "b", 2, {"v": 3}),
        (1, 2),
    ]
    assert feed_partitions(cut, *events) == []  # type: ignore[arg-type]
    cut.note_row("t", "a", {"v": 7}, Timestamp(2), partition=0)
    assert (cut.cuts, cut.waiting) == (2, 0), "a repeat does not wait for a cut"
    assert cut.state == {"t": {"a": {"v": 7}, "b": {"v": 3}}}


def test_cut_finds_the_half_of_a_transaction_that_came_after_the_marks() -> None:
    events = [(0, "a", 1, {"v": 10}), (0, 1), (1, 1), (0, "a", 2, {"v": 7}), (0, 2), (1, 2), (1, "b", 2, {"v": 3})]
    assert feed_partitions(CutValidator(total_is_ten, partitions=PLACES), *events) == [  # type: ignore[arg-type]
        "at resolved 2.0000000000: total is 7"
    ]


def test_cut_never_comes_while_a_partition_has_no_mark() -> None:
    cut = CutValidator(total_is_ten, partitions=PLACES)
    assert feed_partitions(cut, (0, "a", 1, {"v": 3}), (0, 1), (0, 2)) == []
    assert (cut.cuts, cut.waiting) == (0, 1)


def test_cut_does_not_go_back_with_a_smaller_mark() -> None:
    cut = CutValidator(total_is_ten, partitions=PLACES)
    assert feed_partitions(cut, (0, "a", 1, {"v": 10}), (0, 5), (1, 5), (0, 3), (1, 3), (0, "b", 6, {"v": 1})) == []
    assert (cut.cuts, cut.waiting) == (1, 1)


def test_cut_refuses_a_partition_that_it_was_not_told_of() -> None:
    cut = CutValidator(total_is_ten, partitions=PLACES)
    assert feed_partitions(cut, (2, 1), (2, "a", 1, {"v": 3})) == [
        "topic t partition 2: not among the partitions to be cut",
        "topic t partition 2: not among the partitions to be cut",
    ]
    assert feed(CutValidator(total_is_ten, partitions=PLACES), ("resolved", 1)) == [
        "no partition: not among the partitions to be cut"
    ]


def test_cut_at_every_timestamp_finds_a_transaction_with_two_times() -> None:
    scan = [(0, "a", 1, {"v": 4}), (0, "c", 2, {"v": 6}), (0, 2), (1, 2)]  # what a scan reads may be of several times
    events = [*scan, (1, "b", 4, {"v": 3}), (0, "a", 3, {"v": 1}), (0, 4), (1, 4)]
    assert feed_partitions(CutValidator(total_is_ten, partitions=PLACES), *events) == []  # type: ignore[arg-type]
    strict = CutValidator(total_is_ten, partitions=PLACES, every_timestamp=True)
    assert feed_partitions(strict, *events) == ["at 3.0000000000: total is 7"]  # type: ignore[arg-type]


def test_cut_applies_rows_of_several_partitions_in_the_order_of_time() -> None:
    cut = CutValidator(total_is_ten, partitions=PLACES)
    events = [(1, "a", 5, {"v": 10}), (0, "a", 4, {"v": 1}), (0, 5), (1, 5)]
    assert feed_partitions(cut, *events) == []  # type: ignore[arg-type]
