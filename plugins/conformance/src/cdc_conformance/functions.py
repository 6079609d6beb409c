"""The suite of functions of queries, `FunctionConformance`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Conformance
from cdc_core import FunctionRegistration
from cdc_core.delivery.called_function import CalledFunction

_SAMPLES: Mapping[str, Sequence[Any]] = {
    "bool": (True, False, None, True),
    "string": ("", "a", None, "Zoë 1\n"),
    "date32[day]": (0, 19782, None, -1),
    "binary": (b"", b"a", None, b"\x00\xff"),
}
_NUMBERS = (0, 1, None, 7)


class Rows:
    """What a function returns for rows."""

    def test_there_is_one_value_of_the_type_for_each_row(self, rows: pa.RecordBatch, called: CalledFunction) -> None:
        """A function returns an Arrow array of its type with one value for each row; it is empty if there are no rows.

        It gets Arrow arrays of the same length. It raises an exception if it has no value for a row.
        """
        many = pa.Table.from_batches([rows] * 3).combine_chunks().to_batches()[0]
        for part in (rows, many, rows.slice(0, 1), rows.slice(0, 0)):
            values, _ = called.values(part.columns)
            assert len(values) == len(part)

    def test_equal_rows_have_equal_values(
        self, rows: pa.RecordBatch, called: CalledFunction, registration: FunctionRegistration
    ) -> None:
        """A function returns the same values when it is called again, even after it was reloaded."""
        first = called.values(rows.columns)
        assert first == called.values(rows.columns), "the function returned different values when it was called again"
        twice = pa.Table.from_batches([rows, rows]).combine_chunks().to_batches()[0]
        values, failures = CalledFunction(registration).values(twice.columns)
        assert (values.slice(0, len(rows)), values.slice(len(rows))) == (first[0], first[0])
        assert failures == first[1] | {index + len(rows): why for index, why in first[1].items()}

    def test_rows_do_not_depend_on_each_other(self, rows: pa.RecordBatch, called: CalledFunction) -> None:
        """A row has the same value whatever other rows are in its batch: after a restart, batches differ."""
        values, failures = called.values(rows.columns)
        for index in range(len(rows)):
            alone, failed = called.values(rows.slice(index, 1).columns)
            assert alone[0].as_py() == values[index].as_py(), f"row {index} has a different value when passed alone"
            assert (0 in failed) == (index in failures), f"row {index} fails only alone, or only in the batch"

    def test_nulls_are_values_like_others(self, rows: pa.RecordBatch, called: CalledFunction) -> None:
        """Any argument may be null in any row. In a deleted row, all columns except the key are null."""
        nulls = [pa.concat_arrays([pa.nulls(2, column.type), column]) for column in rows.columns]
        expected, failed = called.values(rows.columns)
        values, failures = called.values(nulls)
        assert values.slice(2) == expected, "rows have different values when rows of nulls precede them"
        assert {index - 2 for index in failures if index > 1} == set(failed)


class Registering:
    """How a function reaches the processes that call it."""

    def test_the_registration_survives_pickle(self, registration: FunctionRegistration) -> None:
        """The registration is pickled for Spark's workers, which load the function that it names."""
        assert pickle.loads(pickle.dumps(registration)) == registration


class FunctionConformance(Rows, Registering, Conformance):
    """Every promise of a function of queries.

        class TestDistance(FunctionConformance):
            function = "distance_km"

            @pytest.fixture
            def rows(self):
                return pa.RecordBatch.from_pydict({"lat1": [52.5, None], …})

    Override `rows` for a function that has values for some arguments only.
    """

    kind = "function"
    reserved = Conformance.reserved | {"registration", "called"}
    function: ClassVar[str | FunctionRegistration] = ""
    """The name of an installed function, or a registration."""

    @pytest.fixture
    def rows(self, registration: FunctionRegistration) -> pa.RecordBatch:
        """The arguments of some different rows: a column for each argument."""
        columns = []
        for type_ in registration.arguments:
            if str(type_) in _SAMPLES:
                columns.append(pa.array(_SAMPLES[str(type_)], type_))
            else:
                columns.append(pa.array(_NUMBERS, pa.int64()).cast(type_))
        return pa.RecordBatch.from_arrays(columns, names=[str(index) for index in range(len(columns))])

    @pytest.fixture
    def registration(self) -> FunctionRegistration:
        found = registration_of(type(self), "function")
        assert isinstance(found, FunctionRegistration)
        return found

    @pytest.fixture
    def called(self, registration: FunctionRegistration) -> CalledFunction:
        """The function, loaded and called as by a changefeed."""
        return CalledFunction(registration)
