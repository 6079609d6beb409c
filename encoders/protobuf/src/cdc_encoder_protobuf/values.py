"""Columns as messages `Value`, by the kind of their type. The message of a NULL is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import Bools, Ints, NoRepresentationError, integers, plain_texts, valid_rows, written_items
from cdc_column_texts.binary import Piece, binary, byte_sizes, grouped, looked_up, varint_column

from cdc_core import ColumnType, Kind
from cdc_encoder_protobuf.fields import TIMESTAMP, delimited, tag
from cdc_encoder_protobuf.framed import ABSENT, Framed, concatenated
from cdc_encoder_protobuf.options import ProtobufOptions

_BOOLS = pa.array([b"\x00", b"\x01"], pa.large_binary())
_DOUBLE_BYTES = 8
_SECOND_US = 1_000_000
_FIRST_US = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_AFTER_LAST_US = int(np.datetime64("10000-01-01", "us").astype(np.int64))
_FIELDS = {
    Kind.BOOL: "bool_value",
    Kind.INT: "int64_value",
    Kind.FLOAT: "double_value",
    Kind.DECIMAL: "decimal_value",
    Kind.BYTES: "bytes_value",
    Kind.UUID: "uuid_value",
    Kind.DATE: "date_value",
    Kind.TIME: "time_value",
    Kind.TIMETZ: "time_value",
    Kind.TIMESTAMP: "timestamp_value",
    Kind.TIMESTAMPTZ: "timestamp_value",
    Kind.INTERVAL: "interval_value",
}
"""The field of each kind; `string_value` for all others."""
_PLAIN = frozenset({Kind.DATE, Kind.TIME})


def field_name(type_: ColumnType, options: ProtobufOptions) -> str:
    """Return the field of `Value` that has the values of a column of *type_*, except special ones."""
    if type_.kind is Kind.ARRAY and options.protobuf_arrays == "typed" and type_.element is not None:
        return "array_value"
    return _FIELDS.get(type_.kind, "string_value")


def values(array: pa.Array, type_: ColumnType, options: ProtobufOptions) -> Framed:
    """Return the content of the message `Value` of each row. Raises: NoRepresentationError."""
    name = field_name(type_, options)
    if name == "timestamp_value":
        return _timestamps(array, type_, special_values=options.protobuf_special_values)
    if name == "array_value":
        assert type_.element is not None
        return _arrays(array, type_.element, options)
    write = _WRITERS.get(type_.kind)
    if write is not None:
        return write(array)
    return strings(plain_texts(array, type_) if type_.kind in _PLAIN else array).field(tag("Value", name))


def strings(array: pa.Array) -> Framed:
    """Return the values of a string or binary *array*, absent where it is null."""
    valid = valid_rows(array)
    sizes = byte_sizes(array)
    return Framed(sizes if valid is None else np.where(valid, sizes, ABSENT), [array.cast(pa.large_binary())])


def _bools(array: pa.Array) -> Framed:
    sizes = pc.if_else(array.is_valid(), 1, ABSENT).to_numpy() if array.null_count else 1
    return Framed(sizes, [_BOOLS.take(array.cast(pa.int8()))]).tagged(tag("Value", "bool_value"))


def _ints(array: pa.Array) -> Framed:
    valid = valid_rows(array)
    written, sizes = varint_column(integers(array).view(np.uint64), valid=valid)
    return Framed(sizes if valid is None else np.where(valid, sizes, ABSENT), [written]).tagged(
        tag("Value", "int64_value")
    )


def _doubles(array: pa.Array) -> Framed:
    numbers = array.to_numpy(zero_copy_only=False).astype("<f8", copy=False)
    valid = valid_rows(array)
    sizes = np.full(len(array), _DOUBLE_BYTES, np.int64) if valid is None else np.where(valid, _DOUBLE_BYTES, 0)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    written = binary(offsets, numbers if valid is None else numbers[valid])
    present = _DOUBLE_BYTES if valid is None else np.where(valid, _DOUBLE_BYTES, ABSENT)
    return Framed(present, [written]).tagged(tag("Value", "double_value"))


def _decimals(array: pa.Array) -> Framed:
    return strings(array).field(tag("Decimal", "value")).field(tag("Value", "decimal_value"))


def _arrays(array: pa.Array, element: ColumnType, options: ProtobufOptions) -> Framed:
    def write(items: pa.Array, of: ColumnType) -> pa.Array:
        return values(items, of, options).message(tag("Array", "values")).column(len(items))

    written, counts = written_items(array, element, write, option="protobuf_arrays")
    valid = valid_rows(array)
    absent = None if valid is None else np.flatnonzero(~valid)
    return Framed.of(grouped(written, counts), absent=absent).field(tag("Value", "array_value"))


def _timestamps(array: pa.Array, type_: ColumnType, *, special_values: Literal["error", "string"]) -> Framed:
    """Return the content of the message `Value` of each row, absent where *array* is null.

    Raises: NoRepresentationError for a time outside of the years 1 to 9999, if *special_values* is `error`.
    """
    us, valid = integers(array), valid_rows(array)
    special = np.flatnonzero((us < _FIRST_US) | (us >= _AFTER_LAST_US))
    if len(special) and special_values == "error":
        row = int(special[0])
        text = plain_texts(array.slice(row, 1), type_)[0]
        raise NoRepresentationError(
            row,
            f"a Timestamp of Protocol Buffers has no '{text}'; set protobuf_special_values = 'string' to write it as"
            " text",
        )
    seconds = us // _SECOND_US
    nanos = (us - seconds * _SECOND_US) * 1000
    parts = [_numbers(seconds, tag(TIMESTAMP, "seconds")), _numbers(nanos, tag(TIMESTAMP, "nanos"))]
    content = concatenated(parts)
    if valid is not None:
        content = Framed(np.where(valid, content.sizes, ABSENT), content.body)
    written = content.field(tag("Value", "timestamp_value"))
    return _with_texts(written, array, type_, special) if len(special) else written


def _numbers(numbers: Ints, tag_: bytes) -> Framed:
    """Return a field of *numbers*, which is left out where it is 0. A null row has 0 here."""
    present: Bools = numbers != 0
    written, sizes = varint_column(numbers.view(np.uint64), valid=None if present.all() else present)
    if present.all():
        return Framed(sizes + len(tag_), [tag_, written])
    tags: Piece = looked_up(pa.array([b"", tag_], pa.large_binary()), present.astype(np.int8))
    return Framed(np.where(present, sizes + len(tag_), 0), [tags, written])


def _with_texts(written: Framed, array: pa.Array, type_: ColumnType, special: Ints) -> Framed:
    """Return *written* with texts in the rows *special*."""
    start = tag("Value", "string_value")
    texts = plain_texts(array.take(pa.array(special)), type_).to_pylist()
    table = pa.array([delimited(start, text.encode()) for text in texts], pa.large_binary())
    places = np.arange(len(array))
    places[special] = len(array) + np.arange(len(special))
    column = looked_up(pa.concat_arrays([written.column(len(array)), table]), places)
    valid = valid_rows(array)
    return Framed.of(column, absent=None if valid is None else np.flatnonzero(~valid))


_WRITERS: dict[Kind, Callable[[pa.Array], Framed]] = {
    Kind.BOOL: _bools,
    Kind.INT: _ints,
    Kind.FLOAT: _doubles,
    Kind.DECIMAL: _decimals,
}
