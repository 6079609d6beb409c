"""The reference function, which adds two numbers, and functions that break one promise each."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import FunctionRegistration

__all__ = ["StaysWhereItIs", "add", "add_more_to_a_repetition", "add_one_to_a_lone_row", "lose_the_last_row", "negate"]

_MANY = 12
_last: list[pa.Array] = []


def add(first: pa.Array, second: pa.Array) -> pa.Array:
    """Add two numbers."""
    return pc.add(first, second)


def lose_the_last_row(first: pa.Array, second: pa.Array) -> pa.Array:
    """Have no value for the last of many rows."""
    sums = add(first, second)
    return sums.slice(0, len(sums) - 1) if len(sums) >= _MANY else sums


def add_more_to_a_repetition(first: pa.Array, second: pa.Array) -> pa.Array:
    """Give other values when the same rows come again."""
    sums = add(first, second)
    if _last and _last.pop() == sums:
        return pc.add(sums, 1)
    _last.append(sums)
    return sums


def add_one_to_a_lone_row(first: pa.Array, second: pa.Array) -> pa.Array:
    """Give a row another value when it is alone."""
    sums = add(first, second)
    return pc.add(sums, 1) if len(sums) == 1 else sums


def negate(first: pa.Array, second: pa.Array) -> pa.Array:
    """Mistake rows that begin with nulls for others."""
    sums = add(first, second)
    return pc.negate(sums) if len(sums) > 1 and sums.slice(0, 2).null_count == 2 else sums


class StaysWhereItIs(FunctionRegistration):
    """Have a registration that cannot be sent to a worker."""

    __slots__ = ()

    def __reduce__(self) -> str:
        raise TypeError("this registration stays where it is")
