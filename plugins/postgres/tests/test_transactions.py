from __future__ import annotations

from typing import Any

import pytest
from cdc_testing.decoding import RELATION, US, WALL, T, decoder_of, rows_of, transaction, updated_of
from cdc_testing.pgmessages import begin, commit, insert, log, update

from cdc_core import Timestamp


def test_the_slice_has_the_commits_from_its_start_to_before_its_end() -> None:
    messages = [RELATION]
    for lsn in (99, 100, 199, 200):
        messages += transaction(insert(T, str(lsn), "a"), lsn=lsn)
    decoder = decoder_of(start_lsn=100, end_lsn=200)
    assert [row[1] for row in rows_of(decoder.decode(log(*messages)))] == [100, 199]


def _commits(*us: int, **options: Any) -> list[tuple[int, int]]:
    messages = [RELATION]
    for number, moment in enumerate(us):
        messages += transaction(insert(T, str(2 * number), "a"), insert(T, str(2 * number + 1), "a"), us=US + moment)
    return updated_of(decoder_of(**options).decode(log(*messages)))[::2]


def test_timestamps_are_commit_times_that_strictly_rise_in_log_order() -> None:
    assert _commits(0, 5, 5, 3, 5, 6) == [(0, 0), (5000, 0), (5000, 1), (5000, 2), (5000, 3), (6000, 0)]


def test_timestamps_are_greater_than_those_before_the_slice() -> None:
    assert _commits(0, 1, 2, after=Timestamp(WALL + 1500, 7)) == [(1500, 8), (1500, 9), (2000, 0)]


def test_timestamps_stay_below_the_end_of_the_slice() -> None:
    until = Timestamp(WALL + 3999)
    assert _commits(2, 8, 9, until=until) == [(2000, 0), (3000, 0), (3000, 1)]
    assert _commits(8, after=Timestamp(WALL + 2999), until=until) == [(3000, 0)]


def test_a_slice_without_room_for_a_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="must end at least 1 us after"):
        decoder_of(after=Timestamp(WALL), until=Timestamp(WALL + 998))


def test_mvcc_is_the_commit_time_but_never_after_updated() -> None:
    messages = [RELATION, *transaction(insert(T, "1", "a")), *transaction(insert(T, "2", "a"), us=US + 9)]
    options = {"after": Timestamp(WALL + 500, 3), "until": Timestamp(WALL + 3999)}
    batches = list(decoder_of(mvcc=True, **options).decode(log(*messages)))
    assert updated_of(batches) == [(500, 4), (3000, 0)]
    assert updated_of(batches, "mvcc") == [(0, 0), (3000, 0)]
    assert "mvcc" not in next(decoder_of().decode(log(*messages))).batch.schema.names


def test_latest_is_the_last_timestamp() -> None:
    decoder = decoder_of(after=Timestamp(5, 5))
    assert decoder.latest == Timestamp(5, 5)
    list(decoder.decode(log(RELATION, *transaction(insert(T, "1", "a")))))
    assert decoder.latest == Timestamp(WALL)


def test_a_transaction_over_several_arrays_takes_the_next_logical_value_in_each() -> None:
    decoder = decoder_of()
    first = list(decoder.decode(log(begin(100, us=US), RELATION, insert(T, "1", "a"), insert(T, "2", "a"))))
    second = list(decoder.decode(log(update(T, "1", "b"))))
    third = list(decoder.decode(log(update(T, "1", "c"), commit(), *transaction(insert(T, "4", "d")))))
    assert [updated_of(batches) for batches in (first, second, third)] == [[(0, 0)] * 2, [(0, 1)], [(0, 2), (0, 3)]]


def test_the_rest_of_a_transaction_outside_the_slice_is_left_out() -> None:
    decoder = decoder_of(start_lsn=100)
    assert not list(decoder.decode(log(begin(50, us=US), RELATION, insert(T, "1", "a"))))
    assert rows_of(decoder.decode(log(insert(T, "2", "a"), commit(), *transaction(insert(T, "3", "a"))))) == [
        ("INSERT", 3, (3, "a"))
    ]
