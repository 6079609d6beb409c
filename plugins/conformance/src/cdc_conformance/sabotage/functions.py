"""Broken functions of queries. Each is the reference function with one mistake, and breaks one promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from cdc_conformance.functions import FunctionConformance
from cdc_conformance.sabotage.broken_functions import StaysWhereItIs
from cdc_core import FunctionRegistration

__all__ = ["SABOTEURS", "SUITE", "ReferenceFunctionSuite"]

_HOME = f"{__package__}.broken_functions"
_REFERENCE = FunctionRegistration(
    name="added",
    summary="sum of two numbers",
    function=f"{_HOME}:add",
    arguments=(pa.int64(), pa.int64()),
    returns=pa.int64(),
    deterministic=True,
)


class ReferenceFunctionSuite(FunctionConformance):
    """The suite with the reference function."""

    function = _REFERENCE


def _by(name: str) -> FunctionRegistration:
    return dataclasses.replace(_REFERENCE, function=f"{_HOME}:{name}")


SUITE = ReferenceFunctionSuite
SABOTEURS: Mapping[str, FunctionRegistration] = {
    "test_there_is_one_value_of_the_type_for_each_row": _by("lose_the_last_row"),
    "test_equal_rows_have_equal_values": _by("add_more_to_a_repetition"),
    "test_rows_do_not_depend_on_each_other": _by("add_one_to_a_lone_row"),
    "test_nulls_are_values_like_others": _by("negate"),
    "test_the_registration_survives_pickle_and_json": StaysWhereItIs(
        name="added",
        summary="",
        function=f"{_HOME}:add",
        arguments=(pa.int64(), pa.int64()),
        returns=pa.int64(),
        deterministic=True,
    ),
}
