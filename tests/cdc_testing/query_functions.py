"""Python functions for queries, good and bad, and their registrations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import FunctionRegistration, hookimpl


def whole_number(texts: pa.Array) -> pa.Array:
    """Return the numbers in *texts*. Raises: ValueError for a row that is none."""
    return pa.array([None if text is None else int(text) for text in texts.to_pylist()], pa.int64())


def joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(
        first, second.cast(pa.string()), "-", null_handling="replace", null_replacement="?"
    )


def one_too_few(values: pa.Array) -> pa.Array:
    return values.slice(1)


def other_type(values: pa.Array) -> pa.Array:
    return values.cast(pa.int32())


def registered(name: str, arguments: Sequence[pa.DataType], returns: pa.DataType, **more: str) -> FunctionRegistration:
    """Return the registration of a function of this module, or of *more*."""
    target = more.pop("function", f"{__name__}:{name}")
    return FunctionRegistration(
        name=name, summary="", function=target, arguments=tuple(arguments), returns=returns, deterministic=True, **more
    )


FUNCTIONS = (
    registered("whole_number", [pa.string()], pa.int64()),
    registered("joined", [pa.string(), pa.int64()], pa.string()),
    registered("one_too_few", [pa.int64()], pa.int64()),
    registered("other_type", [pa.int64()], pa.int64()),
    registered("absent", [pa.int64()], pa.int64()),
)


@hookimpl
def cdc_register_functions() -> Iterator[FunctionRegistration]:
    return iter(FUNCTIONS)
