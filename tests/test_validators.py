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
