"""Columns as messages `Value`, by the kind of their type. The message of a NULL is empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import integers, plain_texts, valid_rows, written_items
from cdc_column_texts.binary import binary, byte_sizes, offsets_of, varint_column

from cdc_core import ColumnType, Kind, joined_values
from cdc_encoder_protobuf.fields import tag
from cdc_encoder_protobuf.framed import ABSENT, Framed
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.timestamps import timestamps

__all__ = ["field_name", "strings", "values"]

_BOOLS = pa.array([b"\x00", b"\x01"], pa.large_binary())
_DOUBLE_BYTES = 8
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
        return timestamps(array, type_, special_values=options.protobuf_special_values)
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
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    content = binary(offsets_of(written)[ends], np.frombuffer(joined_values(written), np.uint8))
    valid = valid_rows(array)
    absent = None if valid is None else np.flatnonzero(~valid)
    return Framed.of(content, absent=absent).field(tag("Value", "array_value"))


_WRITERS: dict[Kind, Callable[[pa.Array], Framed]] = {
    Kind.BOOL: _bools,
    Kind.INT: _ints,
    Kind.FLOAT: _doubles,
    Kind.DECIMAL: _decimals,
}
