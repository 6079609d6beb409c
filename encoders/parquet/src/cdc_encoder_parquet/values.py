"""Columns of a `RowBatch` as columns of a file."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import NoRepresentationError, list_bounds, plain_texts, written_items

from cdc_core import ColumnType, Kind
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.types import decimal_type, is_list, is_text, parquet_type

__all__ = ["column_values"]

_INFINITIES = {2**63 - 1: "infinity", -(2**63): "-infinity"}
_SPECIAL: dict[Kind, dict[int, str]] = {
    Kind.DATE: {2**31 - 1: "infinity", -(2**31): "-infinity"},
    Kind.TIME: {86_400_000_000: "24:00:00"},
    Kind.TIMESTAMP: _INFINITIES,
    Kind.TIMESTAMPTZ: _INFINITIES,
}
"""By kind, the numbers that Parquet's types cannot represent, and their texts."""
_SPECIAL_DECIMALS = pa.array(["NaN", "Infinity", "-Infinity"])
_WRAPPING = 39
"""Arrow may read a text of this length or more modulo 2**128."""


def column_values(array: pa.Array, type_: ColumnType, options: ParquetOptions) -> pa.Array:
    """Return *array* as a column of `parquet_type`. Raises: NoRepresentationError."""
    if is_list(type_, options):
        assert type_.element is not None
        return _lists(array, type_.element, parquet_type(type_, options), options)
    if is_text(type_, options):
        return plain_texts(array, type_)
    if type_.kind in _SPECIAL:
        _refuse_special(array, _SPECIAL[type_.kind])
    decimal = decimal_type(type_)
    if decimal is not None:
        return _decimals(array, decimal)
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def _refuse_special(array: pa.Array, special: dict[int, str]) -> None:
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found = pc.index(pc.is_in(numbers, pa.array(special, numbers.type)), value=True).as_py()
    if found >= 0:
        raise NoRepresentationError(
            found,
            f"Parquet's type has no '{special[numbers[found].as_py()]}'; set parquet_special_values = 'string' to write"
            " such columns as text",
        )


def _decimals(array: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    for row in pc.indices_nonzero(pc.greater_equal(pc.binary_length(array), _WRAPPING)).to_pylist():
        reason = _not_a(type_, array[row].as_py())
        if reason is not None:
            raise NoRepresentationError(row, reason)
    try:
        return array.cast(type_)
    except pa.ArrowInvalid as error:
        for row, text in enumerate(array.to_pylist()):
            reason = None if text is None else _not_a(type_, text)
            if reason is not None:
                raise NoRepresentationError(row, reason) from None
        raise NoRepresentationError(0, str(error)) from error


def _not_a(type_: pa.Decimal128Type, text: str) -> str | None:
    """Return why *text* is not a decimal of *type_*; None when it is."""
    if text in _SPECIAL_DECIMALS.to_pylist():
        return f"Parquet's decimals have no '{text}'; set parquet_special_values = 'string' to write decimals as text"
    try:
        number = Decimal(text)
    except InvalidOperation:
        return f"the decimal '{text[:80]}' is not a number"
    try:
        fits = pa.array([text]).cast(type_)[0].as_py() == number
    except pa.ArrowInvalid:
        fits = False
    digits = f"precision {type_.precision} and scale {type_.scale}"
    return None if fits else f"'{text[:80]}' is not a decimal of the declared {digits}"


def _lists(array: pa.Array, element: ColumnType, type_: pa.ListType, options: ParquetOptions) -> pa.Array:
    values, counts = written_items(
        array, element, lambda items, of: column_values(items, of, options), option="parquet_arrays"
    )
    bounds = list_bounds(counts)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(bounds), values, type=type_, mask=mask)
