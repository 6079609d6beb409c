"""The reference function, which adds two numbers, and functions that break one promise each."""

from __future__ import annotations

import dataclasses
import sys

import pyarrow as pa
import pyarrow.compute as pc

from cdc_conformance.functions import FunctionConformance
from cdc_conformance.sabotage.breaking import breaks, broken
from cdc_core import FunctionRegistration

_MANY = 12
_last: list[pa.Array] = []


def add(first: pa.Array, second: pa.Array) -> pa.Array:
    """Add two numbers."""
    return pc.add(first, second)


_REFERENCE = FunctionRegistration(
    name="added",
    summary="sum of two numbers",
    function=f"{__name__}:add",
    arguments=(pa.int64(), pa.int64()),
    returns=pa.int64(),
    deterministic=True,
)


class ReferenceFunctionSuite(FunctionConformance):
    """The suite with the reference function."""

    function = _REFERENCE


@breaks("test_there_is_one_value_of_the_type_for_each_row")
def lose_the_last_row(first: pa.Array, second: pa.Array) -> pa.Array:
    """Returns no value for the last of many rows."""
    sums = add(first, second)
    return sums.slice(0, len(sums) - 1) if len(sums) >= _MANY else sums


@breaks("test_equal_rows_have_equal_values")
def add_more_to_a_repetition(first: pa.Array, second: pa.Array) -> pa.Array:
    """Returns other values when the same rows come again."""
    sums = add(first, second)
    if _last and _last.pop() == sums:
        return pc.add(sums, 1)
    _last.append(sums)
    return sums


@breaks("test_rows_do_not_depend_on_each_other")
def add_one_to_a_lone_row(first: pa.Array, second: pa.Array) -> pa.Array:
    """Returns another value for a row that is alone."""
    sums = add(first, second)
    return pc.add(sums, 1) if len(sums) == 1 else sums


@breaks("test_nulls_are_values_like_others")
def negate(first: pa.Array, second: pa.Array) -> pa.Array:
    """Returns wrong values when the first two rows are null."""
    sums = add(first, second)
    return pc.negate(sums) if len(sums) > 1 and sums.slice(0, 2).null_count == 2 else sums


class StaysWhereItIs(FunctionRegistration):
    """Has a registration that cannot be pickled for a worker."""

    __slots__ = ()

    def __reduce__(self) -> str:
        raise TypeError("this registration stays where it is")


_FIELDS = {field.name: getattr(_REFERENCE, field.name) for field in dataclasses.fields(_REFERENCE) if field.init}

SUITE = ReferenceFunctionSuite
SABOTEURS = broken(_REFERENCE, sys.modules[__name__])
SABOTEURS["test_the_registration_survives_pickle"] = StaysWhereItIs(**_FIELDS | {"summary": StaysWhereItIs.__doc__})
