"""The Arrow type, and thereby the Parquet type, of each kind of column."""

from __future__ import annotations

import pyarrow as pa

from cdc_core import ColumnType, Kind
from cdc_encoder_parquet.options import ParquetOptions

_MAX_DIGITS = 38
"""The maximum precision of decimals in Polars, DuckDB and Spark. Longer ones are written as text."""
_WITH_SPECIAL_VALUES = frozenset({Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


def parquet_type(type_: ColumnType, options: ParquetOptions) -> pa.DataType:
    """Return the type of a column of *type_* in a file. All columns are nullable.

    A type that pyarrow, Polars, DuckDB and Spark do not all read is text: Spark refuses files with Parquet's UUID, and
    Polars reads Parquet's JSON as bytes.
    """
    if is_list(type_, options):
        assert type_.element is not None
        return pa.list_(pa.field("element", parquet_type(type_.element, options)))
    if is_text(type_, options):
        return pa.string()
    decimal = decimal_type(type_)
    return type_.arrow if decimal is None else decimal


def is_list(type_: ColumnType, options: ParquetOptions) -> bool:
    """Return whether *type_* is a list. Any other array is JSON text."""
    return type_.kind is Kind.ARRAY and options.parquet_arrays == "typed" and type_.element is not None


def is_text(type_: ColumnType, options: ParquetOptions) -> bool:
    """Return whether the options make a column of decimals, dates or times text."""
    if type_.kind is Kind.TIME and options.parquet_time == "string":
        return True
    return type_.kind in _WITH_SPECIAL_VALUES and options.parquet_special_values == "string"


def decimal_type(type_: ColumnType) -> pa.Decimal128Type | None:
    """Return the type of a decimal with a declared precision of at most 38 digits; None for any other type."""
    digits = type_.decimal_digits
    return pa.decimal128(*digits) if digits is not None and digits[0] <= _MAX_DIGITS else None
