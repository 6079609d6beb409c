"""Arrays of messages that end with transactions, however the log was fetched."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
from cdc_rangefeed_postgres.transaction_framing import whole_transactions
from hypothesis import given
from hypothesis import strategies as st

LARGEST = 100

transactions = st.lists(st.lists(st.integers(1, 3 * LARGEST), max_size=8), max_size=8)


def messages_of(sizes: list[list[int]], *, final_lsn: int = 7) -> list[bytes]:
    begin = b"B" + final_lsn.to_bytes(8) + b"." * 12
    return [message for rows in sizes for message in (begin, *(b"I" * size for size in rows), b"C" * 26)]


def cut(fetches: list[list[bytes]], *, start: int = 7) -> list[list[bytes]]:
    arrays = (pa.array(fetch, pa.binary()) for fetch in fetches)
    return [array.to_pylist() for array in whole_transactions(arrays, largest=LARGEST, start=start)]


def fetched(messages: list[bytes], places: set[int]) -> list[list[bytes]]:
    bounds = [0, *sorted(place for place in places if place < len(messages)), len(messages)]
    return [messages[start:stop] for start, stop in itertools.pairwise(bounds)]


def parts_of(arrays: list[list[bytes]]) -> set[int]:
    """Return after how many messages transactions are cut."""
    counts = [len(array) for array in arrays]
    ends = [sum(counts[: index + 1]) for index in range(len(counts))]
    return {end for end, array in zip(ends, arrays, strict=True) if array[-1][:1] != b"C"}


@given(transactions, st.sets(st.integers(0, 80)))
def test_a_transaction_is_cut_only_when_it_is_large_and_always_at_the_same_messages(
    sizes: list[list[int]], places: set[int]
) -> None:
    messages = messages_of(sizes)
    arrays = cut(fetched(messages, places))
    assert [message for array in arrays for message in array] == messages
    assert parts_of(arrays) == parts_of(cut([[message] for message in messages]))
    if all(21 + sum(rows) < LARGEST for rows in sizes):
        assert parts_of(arrays) == set()


@given(transactions, transactions, st.sets(st.integers(0, 160)))
def test_arrays_are_the_same_whatever_was_before_them_and_however_they_were_fetched(
    earlier: list[list[int]], sizes: list[list[int]], places: set[int]
) -> None:
    before, messages = messages_of(earlier, final_lsn=6), messages_of(sizes)
    arrays = cut(fetched(before + messages, places))
    assert [message for array in arrays for message in array] == before + messages
    ends = list(itertools.accumulate(len(array) for array in arrays))
    assert not before or len(before) in ends
    assert arrays[len([end for end in ends if end <= len(before)]) :] == cut([[message] for message in messages])


@given(transactions, st.sets(st.integers(0, 80)))
def test_what_is_held_back_is_bounded(sizes: list[list[int]], places: set[int]) -> None:
    """So is what an array has: a fetch, what was held back, and one message."""
    for fetch in (fetched(messages_of(sizes), places), [[message] for message in messages_of(sizes)]):
        largest = max((sum(map(len, one)) for one in fetch), default=0)
        for array in cut(fetch):
            assert sum(map(len, array)) <= largest + LARGEST + 3 * LARGEST


def test_a_message_that_completes_a_part_is_not_held_back() -> None:
    taken: list[int] = []

    def fetches() -> Iterator[pa.BinaryArray]:
        for size in (LARGEST, LARGEST, LARGEST):
            yield pa.array([b"I" * size])
            taken.append(len(yielded))

    yielded: list[pa.Array] = []
    for array in whole_transactions(fetches(), largest=LARGEST):
        yielded.append(array)
    assert taken == [1, 2, 3]


def test_slices_of_arrays_are_cut_like_arrays() -> None:
    messages = messages_of([[10, 200], [5], [150, 150]])
    whole = pa.array([b"x", *messages, b"y"], pa.large_binary())
    arrays = [array.to_pylist() for array in whole_transactions([whole.slice(1, len(messages))], largest=LARGEST)]
    assert arrays == cut([messages])


@given(transactions, st.sets(st.integers(0, 80)), st.sets(st.integers(0, 80)))
def test_shapes_of_tables_do_not_move_the_cuts(sizes: list[list[int]], places: set[int], shapes: set[int]) -> None:
    messages = messages_of(sizes)
    with_shapes = [
        part for index, message in enumerate(messages) for part in ([b"R" * 70] * (index in shapes) + [message])
    ]
    arrays = [[message for message in array if message[:1] != b"R"] for array in cut(fetched(with_shapes, places))]
    assert parts_of(arrays) == parts_of(cut([[message] for message in messages]))
