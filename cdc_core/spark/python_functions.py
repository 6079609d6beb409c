"""Python functions in Spark's plan: evaluated over Arrow before the expressions that call them.

Each call is a column `fN_I` of the version N, a struct of the `value`, null where the function failed, and the `error`,
which says why. An expression raises it where it uses the value, so that a call in a branch that is not taken does no
harm. The arguments are evaluated in `try`, as they are outside of the expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructField

from cdc_core.delivery.called_function import CalledFunction
from cdc_core.errors import CdcError, to_wire
from cdc_core.function_registration import FunctionRegistration
from cdc_core.queries.bound_query import BoundQuery, PythonCall

_ARGUMENT = (
    "an argument cannot be computed: a division by zero, a cast that failed, a number out of range, or an infinite date"
    " or time"
)


def call_fields(query: BoundQuery) -> list[StructField]:
    """Return the columns of the calls as Spark has them."""
    schema = pa.schema([(call.column, _result_type(call.function)) for call in query.calls])
    return list(from_arrow_schema(schema, prefer_timestamp_ntz=True))


def called(rows: DataFrame, call: PythonCall, *, number: int, arguments: Sequence[Column]) -> DataFrame:
    """Return *rows* of version *number* with the column of *call*. *arguments* are structs, null where they failed."""
    result = from_arrow_type(_result_type(call.function), prefer_timestamp_ntz=True)
    evaluation = Evaluation(call.function)

    def evaluate(asked: pa.Array, *given: pa.Array) -> pa.Array:  # Spark wants a function with types
        return evaluation(asked, *given)

    udf = f.arrow_udf(evaluate, result)  # type: ignore[attr-defined]
    return rows.withColumn(call.column, udf(f.col("plan") == number, *arguments))


class Evaluation:
    """What Spark's Python workers do for a call. Picklable; loads the function when it is called first."""

    def __init__(self, registration: FunctionRegistration) -> None:
        self._registration = registration
        self._function: CalledFunction | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Evaluation, (self._registration,)

    def __call__(self, asked: pa.Array, *arguments: pa.Array) -> pa.Array:
        """Return the column of the call. Rows that are not *asked* are those of other versions, and no rows at all."""
        try:
            if self._function is None:
                self._function = CalledFunction(self._registration)
            known = [argument.is_valid() for argument in arguments]
            good = np.logical_and.reduce([np.asarray(mask) for mask in (asked, *known)])
            given = pc.fill_null(asked, False)
            picked = pa.array(good)
            values, failures = self._function.values([argument.field(0).filter(picked) for argument in arguments])
        except CdcError as error:
            raise RuntimeError(f"{error} {to_wire(error)}") from None
        places = np.flatnonzero(good)
        takes = np.full(len(asked), -1)
        takes[places] = np.arange(len(places))
        errors = np.full(len(asked), None, dtype=object)
        errors[np.asarray(given) & ~good] = _ARGUMENT
        for index, reason in failures.items():
            errors[places[index]] = reason
        spread = values.take(pa.array(takes, mask=~good))
        return pa.StructArray.from_arrays([spread, pa.array(errors, pa.string())], names=["value", "error"])


def _result_type(registration: FunctionRegistration) -> pa.StructType:
    return pa.struct([("value", registration.returns), ("error", pa.string())])
