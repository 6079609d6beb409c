"""The search for bad rows, as a pure function: it isolates exactly the bad rows, whatever the hints say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from hypothesis import given
from hypothesis import strategies as st

from cdc_core.delivery.search import BadRowSearch, divided


@dataclass(frozen=True)
class Run:
    """Rows that are numbers."""

    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def slice(self, offset: int, length: int | None = None) -> Self:
        return type(self)(self.numbers[offset : None if length is None else offset + length])


@dataclass
class Outcome:
    accepted: list[int]
    refused: list[int]
    tried: int


def search(batches: Sequence[Run], bad: set[int], hints: Sequence[int | None], *, parts: int) -> Outcome:
    """Try *batches* as the delivery loop does; the *n*-th refusal carries the *n*-th of *hints*."""
    found = Outcome(accepted=[], refused=[], tried=0)
    searching: BadRowSearch[Run] = BadRowSearch(parts=parts)
    todo = [list(batches)]
    refusals = 0
    while todo:
        part = todo.pop(0)
        found.tried += sum(map(len, part))
        numbers = [number for run in part for number in run.numbers]
        if not bad & set(numbers):
            found.accepted += numbers
            if len(part) == 1:
                searching.accepted(part[0])
        elif len(numbers) == 1:
            found.refused += numbers
        else:
            hint = hints[refusals] if refusals < len(hints) else None
            refusals += 1
            narrowed = searching.narrow(part, hint)
            assert [n for each in narrowed for run in each for n in run.numbers] == numbers
            assert all(each and sum(map(len, each)) < len(numbers) for each in narrowed)
            todo[:0] = narrowed
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Run], set[int], list[int | None]]:
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=6))
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    batches = [Run(tuple(range(start, start + size))) for start, size in zip(starts, sizes, strict=True)]
    count = sum(sizes)
    bad = draw(st.sets(st.integers(0, count - 1)))
    hints = draw(st.lists(st.none() | st.integers(-2, count + 2), max_size=10))
    return batches, bad, hints


@given(cases(), st.integers(2, 9))
def test_exactly_the_bad_rows_are_isolated_and_all_others_accepted_in_order(
    case: tuple[list[Run], set[int], list[int | None]], parts: int
) -> None:
    batches, bad, hints = case
    outcome = search(batches, bad, hints, parts=parts)
    everything = [number for run in batches for number in run.numbers]
    assert outcome.refused == sorted(bad)
    assert outcome.accepted == [number for number in everything if number not in bad]


@given(st.integers(1, 5000), st.data())
def test_a_right_hint_isolates_a_single_bad_row_at_the_first_try(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, count - 1))
    outcome = search([Run(tuple(range(count)))], {bad}, [bad], parts=8)
    assert outcome.tried <= 2 * count


@given(st.integers(2, 2000), st.data())
def test_wrong_hints_cost_no_more_than_one_refusal_more(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(1, count - 1))
    run = Run(tuple(range(count)))
    without = search([run], {bad}, [], parts=2)
    misled = search([run], {bad}, [0] * 50, parts=2)
    assert misled.tried <= without.tried + count


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 9))
def test_parts_are_of_about_one_size_and_none_is_empty(sizes: list[int], parts: int) -> None:
    found = list(divided([Run(tuple(range(size))) for size in sizes], parts))
    lengths = [sum(map(len, part)) for part in found]
    assert sum(lengths) == sum(sizes)
    assert len(lengths) <= parts
    assert all(lengths)
    assert not lengths or max(lengths) - lengths[-1] == max(lengths) - min(lengths)
