"""What a consumer with a copy under each key must find, and what the nemesis's validators say when it does not."""

from __future__ import annotations

import pytest
from cdc_conformance.validators import SeenMark, SeenRow
from cdc_testing.nemesis_keys import ById, PresentKeyValidator, Rescanned, RescanValidator
from cdc_testing.nemesis_ledger import Ledger
from cdc_testing.seen import feed, mark

from cdc_core import Timestamp

ENDPOINTS = [(None, None)]


def row(at: int, *key: int, n: int | None = None) -> SeenRow:
    """Return a row as it arrives; without *n* a delete."""
    after = None if n is None else {"id": next(value for value in key if value < 1000), "n": n}
    return SeenRow(topic="t", key=key, after=after, updated=Timestamp(at))


@pytest.fixture
def ledger() -> Ledger:
    """The table gets the key (n, id) at some moment from 20 to 22."""
    ledger = Ledger({"t": "t"})
    ledger.key_changed("t", ("n", "id"), earliest=Timestamp(20), latest=Timestamp(22))
    return ledger


def failures(ledger: Ledger, *events: SeenRow | SeenMark, lost: tuple[int, ...] = ()) -> list[str]:
    return feed(PresentKeyValidator(ledger.keys_at, lambda _: lost, ENDPOINTS), *events)


BEFORE = (row(10, 1, n=1001), row(10, 2, n=1002), mark(19))


def test_a_copy_under_the_new_key_is_complete_at_the_next_mark(ledger: Ledger) -> None:
    again = row(30, 1001, 1, n=1001), row(30, 1002, 2, n=1002), mark(30)
    assert failures(ledger, *BEFORE, *again) == []
    assert failures(ledger, *BEFORE, *again, row(31, 1002, 2), row(31, 1003, 2, n=1003), mark(31)) == []
    changed = row(25, 1001, 1), row(25, 1003, 1, n=1003)
    assert failures(ledger, *BEFORE, *changed, row(30, 1002, 2, n=1002), mark(30)) == []


def test_a_row_without_its_new_key_is_found(ledger: Ledger) -> None:
    (failure,) = failures(ledger, *BEFORE, row(30, 1001, 1, n=1001), mark(30))
    assert "row 2 is None, expected {'id': 2, 'n': 1002}" in failure
    assert failures(ledger, *BEFORE, row(30, 1001, 1, n=1001), mark(30), lost=(2,)) == []


def test_a_mark_behind_the_change_without_rows_under_the_new_key_is_found(ledger: Ledger) -> None:
    assert failures(ledger, *BEFORE, mark(21)) == []
    (failure,) = failures(ledger, *BEFORE, mark(22))
    assert "rows have the key ('id',), the table has [('n', 'id')]" in failure
    (failure,) = failures(ledger, row(10, 1001, 1, n=1001), mark(19))
    assert "rows have the key ('n', 'id'), the table has [('id',)]" in failure


def test_a_row_that_is_left_under_its_last_key_is_found(ledger: Ledger) -> None:
    again = row(30, 1001, 1, n=1001), row(30, 1002, 2, n=1002), mark(30)
    (failure,) = failures(ledger, *BEFORE, *again, row(31, 1003, 2, n=1003), mark(31))
    assert "several rows with one id" in failure


def test_a_key_that_is_not_the_row_s_is_found(ledger: Ledger) -> None:
    (failure,) = failures(ledger, row(10, 1, 1005, n=1001))
    assert "key [1, 1005]" in failure


class Seen:
    """A validator that keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[SeenRow] = []

    def note_row(self, row: SeenRow) -> None:
        self.rows.append(row)

    def note_resolved(self, mark: SeenMark) -> None:
        pass

    def failures(self) -> list[str]:
        return []


def test_an_update_that_changes_the_key_is_one_version_of_the_row() -> None:
    seen = Seen()
    events = row(10, 1001, 1, n=1001), row(11, 1002, 1, n=1002), row(11, 1001, 1), mark(11), row(11, 1001, 1), mark(12)
    feed(ById(seen, ENDPOINTS), *events, row(13, 1002, 1), mark(13))
    assert [(row.key, row.after and row.after["n"]) for row in seen.rows] == [((1,), 1001), ((1,), 1002), ((1,), None)]


def test_rows_that_a_rescan_leaves_out_are_found() -> None:
    def missing(below: int | None, *events: SeenRow | SeenMark) -> list[str]:
        rescan = Rescanned(topic="t", below=below, began=Timestamp(19))
        found = feed(RescanValidator([rescan], ENDPOINTS), *BEFORE, *events)
        return [failure.partition(" did not arrive")[0] for failure in found]

    assert missing(None, row(25, 1, n=1001), row(25, 2, n=1002), mark(25)) == []
    assert missing(None, row(24, 1), row(25, 2, n=1003), mark(25)) == []
    assert missing(None, row(25, 1, n=1001), mark(25), row(26, 2, n=1002), mark(26)) == ["topic t: row 2"]
    assert missing(2, row(25, 1, n=1001), mark(25)) == []
    assert missing(2, mark(25)) == ["topic t: row 1"]
    assert len(missing(2)) == 1
