"""The columns of a file: those of the table, then those of metadata."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import (
    SPECIAL_DECIMALS,
    SPECIAL_NUMBERS,
    NoRepresentationError,
    columns_with_keys,
    encode_error,
    hlc_texts,
    list_bounds,
    plain_texts,
    written_items,
)

from cdc_core import ColumnType, Envelope, Op, RowBatch, TableSchema
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.types import decimal_type, is_list, is_text, parquet_type

EVENT_TYPE, UPDATED, MVCC, BEFORE = "__crdb__event_type", "__crdb__updated", "__crdb__mvcc_timestamp", "__crdb__before"
UNAVAILABLE = "__crdb__unavailable"
METADATA = (EVENT_TYPE, UPDATED, MVCC, BEFORE, UNAVAILABLE)
"""Every column of metadata that a file may have, in order."""
EVENTS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.SCAN: "c"}
SCHEMA_KEY = b"cdc.schema"
"""Key of the file metadata that holds the table's schema as JSON: names, source types, primary key, version."""
_NAMES = pa.list_(pa.field("element", pa.string()))
_WRAPPING = 39
"""Arrow may read a text of this length or more modulo 2**128."""
_EVENTS_BY_NUMBER = pa.array([None, *(EVENTS[op] for op in sorted(EVENTS))])


def file_schema(schema: TableSchema, envelope: Envelope, options: ParquetOptions) -> pa.Schema:
    """Return the columns of a file of rows of *schema*."""
    columns = [pa.field(column.name, parquet_type(column.type, options)) for column in schema.columns]
    fields = [*columns, pa.field(EVENT_TYPE, pa.string())]
    if envelope.updated:
        fields.append(pa.field(UPDATED, pa.string()))
    if envelope.mvcc_timestamp:
        fields.append(pa.field(MVCC, pa.string()))
    if envelope.diff:
        fields.append(pa.field(BEFORE, pa.struct(columns)))
    fields.append(pa.field(UNAVAILABLE, _NAMES))
    return pa.schema(fields)


def file_metadata(schema: TableSchema) -> dict[bytes, bytes]:
    """Return the metadata of a file, the only place that names the key columns."""
    return {SCHEMA_KEY: json.dumps(schema.to_json(), separators=(",", ":")).encode()}


def file_columns(rows: RowBatch, schema: pa.Schema, envelope: Envelope, options: ParquetOptions) -> pa.RecordBatch:
    """Return *rows* in the columns of *schema*, their `file_schema`. Raises: EncodeError."""
    arrays = _images(rows, columns_with_keys(rows), options)
    arrays.append(_EVENTS_BY_NUMBER.take(rows.column("op")))
    if UPDATED in schema.names:
        arrays.append(hlc_texts(envelope.column(rows, "updated")))
    if MVCC in schema.names:
        arrays.append(hlc_texts(envelope.column(rows, "mvcc_timestamp")))
    if BEFORE in schema.names:
        arrays.append(_before(rows, envelope, schema.field(BEFORE).type, options))
    arrays.append(rows.column("unavailable").cast(_NAMES) if rows.has_unavailable else pa.nulls(len(rows), _NAMES))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _images(rows: RowBatch, arrays: list[pa.Array], options: ParquetOptions) -> list[pa.Array]:
    """Return *arrays*, the table's columns in *rows*, as columns of a file."""
    written = []
    for column, array in zip(rows.schema.columns, arrays, strict=True):
        try:
            written.append(_column_values(array, column.type, options))
        except NoRepresentationError as error:
            raise encode_error(error, rows, column, format_="Parquet") from error
    return written


def _before(rows: RowBatch, envelope: Envelope, type_: pa.StructType, options: ParquetOptions) -> pa.Array:
    before = envelope.column(rows, "before")
    if before is None:
        return pa.nulls(len(rows), type_)
    images = _images(rows, before.flatten(), options)
    return pa.StructArray.from_arrays(images, fields=list(type_), mask=before.is_null())


def _column_values(array: pa.Array, type_: ColumnType, options: ParquetOptions) -> pa.Array:
    """Return *array* as a column of `parquet_type`. Raises: NoRepresentationError."""
    if is_list(type_, options):
        assert type_.element is not None
        return _lists(array, type_.element, parquet_type(type_, options), options)
    if is_text(type_, options):
        return plain_texts(array, type_)
    if type_.kind in SPECIAL_NUMBERS:
        _refuse_special(array, SPECIAL_NUMBERS[type_.kind])
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
    if text in SPECIAL_DECIMALS:
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
        array, element, lambda items, of: _column_values(items, of, options), option="parquet_arrays"
    )
    bounds = list_bounds(counts)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(bounds), values, type=type_, mask=mask)
