"""Reads rows by SELECT through ADBC, with exactly the values of the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import START_OVER, ColumnType, Kind, TableSchema, TerminalRangefeedError
from cdc_rangefeed_postgres.builtin_types import BUILTIN, BUILTIN_ARRAYS
from cdc_rangefeed_postgres.columns import ColumnReader, column_readers
from cdc_rangefeed_postgres.datetimes import (
    DATE_EPOCH_DAYS,
    FIRST_DAY,
    FIRST_TIMESTAMP_US,
    TIMESTAMP_EPOCH_US,
    OutOfRangeError,
    sql_date,
    sql_time,
    sql_timestamp,
)
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.types import TableVersion

_DIRECT_KINDS = {
    Kind.BOOL,
    Kind.INT,
    Kind.FLOAT,
    Kind.BYTES,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.TIMESTAMPTZ,
    Kind.JSON,
    Kind.ENUM,
}
_DIRECT_TEXTS = {25, 1043, 1042, 19}
"""text, varchar, bpchar, name"""
_OUTPUT_FUNCTIONS = {18: "charout", 869: "inet_out", 650: "cidr_out", 142: "xml_out"}
"""Types whose cast to text differs from their output function, which the log uses."""


def select_list(version: TableVersion, columns: Sequence[str]) -> str:
    """Return the select list for *columns* of *version*, in that order.

    The session must have IntervalStyle postgres, DateStyle ISO, TimeZone UTC, bytea_output hex, extra_float_digits 1.
    """
    return ", ".join(_expression(reader) for reader in _readers(version, columns))


def to_struct(batch: pa.RecordBatch, version: TableVersion, columns: Sequence[str]) -> pa.StructArray:
    """Return the result of a query with `select_list` as the part of `version.schema.after_type` for *columns*.

    Raises: TerminalRangefeedError for a timestamp out of range.
    """
    readers = _readers(version, columns)
    arrays = [_values(reader, batch.column(index)) for index, reader in enumerate(readers)]
    fields = [pa.field(reader.column.name, reader.type_.arrow) for reader in readers]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def has_key_texts(schema: TableSchema) -> bool:
    """Return whether `sql_texts` takes values of all key columns, so that rows can be looked up by key."""
    return all(_has_texts(schema.column(name).type) for name in schema.primary_key)


def sql_texts(array: pa.Array, type_: ColumnType) -> list[str | None]:
    """Return *array* as texts for the input function of the type, for use in `$1::text[]::date[]`.

    Raises: TerminalRangefeedError for arrays and composites.
    """
    if not _has_texts(type_):
        raise TerminalRangefeedError(
            f"rows cannot be looked up by a key of type {type_.source}. Run ALTER TABLE … REPLICA IDENTITY FULL on the"
            f" table. {START_OVER}"
        )
    if type_.kind is Kind.BYTES:
        return [None if value is None else "\\x" + value.hex() for value in array.to_pylist()]
    if type_.kind is Kind.DATE:
        return [None if value is None else sql_date(value) for value in array.view(pa.int32()).to_pylist()]
    if type_.kind is Kind.TIME:
        return [None if value is None else sql_time(value) for value in array.view(pa.int64()).to_pylist()]
    if type_.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        zone = "+00" if type_.kind is Kind.TIMESTAMPTZ else ""
        return [None if value is None else sql_timestamp(value, zone) for value in array.view(pa.int64()).to_pylist()]
    if type_.kind is Kind.FLOAT and type_.bits == 32:
        return [None if value is None else str(np.float32(value)) for value in array.to_pylist()]
    return [None if value is None else str(value) for value in array.to_pylist()]


def _has_texts(type_: ColumnType) -> bool:
    return type_.kind not in (Kind.ARRAY, Kind.COMPOSITE)


def _readers(version: TableVersion, columns: Sequence[str]) -> Sequence[ColumnReader]:
    by_name = {reader.column.name: reader for reader in column_readers(version)}
    return [by_name[name] for name in columns]


def _direct(reader: ColumnReader) -> bool:
    """Return whether ADBC reads the type correctly, and at least as fast as its text."""
    kind = reader.type_.kind
    return kind in _DIRECT_KINDS or (kind is Kind.STRING and reader.base_oid in _DIRECT_TEXTS)


def _expression(reader: ColumnReader) -> str:
    name = quoted(reader.column.name)
    base = reader.base_oid
    if _direct(reader):
        return name
    if base in _OUTPUT_FUNCTIONS:
        return f"pg_catalog.{_OUTPUT_FUNCTIONS[base]}({name})::text AS {name}"
    if base in BUILTIN or base in BUILTIN_ARRAYS:
        return f"{name}::text AS {name}"
    # Users can define a cast of their types to text. Like the log, format uses the output function.
    return f"CASE pg_catalog.num_nulls({name}) WHEN 0 THEN pg_catalog.format('%s', {name}) END AS {name}"


def _values(reader: ColumnReader, array: pa.Array) -> pa.Array:
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    type_ = reader.type_.arrow
    if not _direct(reader):
        return reader.from_texts(array)
    if reader.type_.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        whole = array.view(pa.int64())
        return reader.guarded(lambda: _unwrapped(whole, TIMESTAMP_EPOCH_US, FIRST_TIMESTAMP_US).view(type_))
    if reader.type_.kind is Kind.DATE:
        return reader.guarded(lambda: _unwrapped(array.view(pa.int32()), DATE_EPOCH_DAYS, FIRST_DAY).view(type_))
    return array if array.type == type_ else array.cast(type_)


def _unwrapped(array: pa.Array, epoch: int, first: int) -> pa.Array:
    """Return integers since 1970 with correct infinities.

    ADBC moves the epoch from 2000 to 1970 without a check for overflow. So infinity (the greatest integer), -infinity
    (the least) and timestamps that are too late for this epoch arrive as values below PostgreSQL's first day.
    """
    if len(array) == array.null_count or pc.min(array).as_py() >= first:
        return array
    limits = np.iinfo(array.type.to_pandas_dtype())
    infinite, minus_infinite = limits.min + epoch - 1, limits.min + epoch
    wrapped = pc.less(array, first)
    known = pc.or_(pc.equal(array, infinite), pc.equal(array, minus_infinite))
    if pc.any(pc.and_not(wrapped, known)).as_py():
        raise OutOfRangeError("timestamp")
    values = pc.if_else(pc.equal(array, infinite), pa.scalar(limits.max, array.type), array)
    return pc.if_else(pc.equal(array, minus_infinite), pa.scalar(limits.min, array.type), values)
