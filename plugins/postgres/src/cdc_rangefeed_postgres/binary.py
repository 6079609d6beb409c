"""Decodes values of the log in PostgreSQL's binary form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import ColumnType, Kind
from cdc_rangefeed_postgres.datetimes import DATE_EPOCH_DAYS, TIMESTAMP_EPOCH_US, OutOfRangeError
from cdc_rangefeed_postgres.fields import Fields
from cdc_rangefeed_postgres.numerics import numeric_texts

_OID, _JSONB = 26, 3802
_HEX = np.frombuffer("".join(f"{n:02x}" for n in range(256)).encode(), np.uint8).reshape(256, 2)
_UUID_GROUPS = ((0, 4, 0), (4, 6, 9), (6, 8, 14), (8, 10, 19), (10, 16, 24))
"""First byte, byte after the last, first character."""
_UUID_WIDTH = 36


def decode_binary(fields: Fields, type_: ColumnType, base_oid: int) -> pa.Array:
    """Return the values of a column as `type_.arrow`. *base_oid* is the type under all domains.

    `binary_safe` must be true for it. Raises: OutOfRangeError for a timestamp.
    """
    if base_oid == _JSONB:
        return fields.texts(skip=1)  # the version of the form
    if base_oid == _OID:
        return _numbers(fields, ">u4", pa.uint32()).cast(pa.string())
    return _DECODERS[type_.kind](fields, type_)


def _numbers(fields: Fields, form: str, type_: pa.DataType) -> pa.Array:
    return _array(fields, fields.numbers(form).astype(np.dtype(form).newbyteorder("=")), type_)


def _array(fields: Fields, values: npt.NDArray[np.generic], type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(fields), [fields.validity(), pa.py_buffer(values)])


def _bool(fields: Fields, _: ColumnType) -> pa.Array:
    return pa.array(fields.messages.bytes[fields.starts] != 0, mask=fields.null)


def _int(fields: Fields, type_: ColumnType) -> pa.Array:
    return _numbers(fields, f">i{(type_.bits or 64) // 8}", type_.arrow)


def _float(fields: Fields, type_: ColumnType) -> pa.Array:
    return _numbers(fields, f">f{(type_.bits or 64) // 8}", type_.arrow)


def _date(fields: Fields, type_: ColumnType) -> pa.Array:
    days = fields.numbers(">i4").astype(np.int32)
    limits = np.iinfo(np.int32)
    infinite = (days == limits.max) | (days == limits.min)
    return _array(fields, days + np.where(infinite, 0, DATE_EPOCH_DAYS).astype(np.int32), type_.arrow)


def _time(fields: Fields, type_: ColumnType) -> pa.Array:
    return _numbers(fields, ">i8", type_.arrow)


def _timestamp(fields: Fields, type_: ColumnType) -> pa.Array:
    us = fields.numbers(">i8").astype(np.int64)
    limits = np.iinfo(np.int64)
    last = limits.max - TIMESTAMP_EPOCH_US
    if (us >= last).any() or (us == limits.min).any():
        infinite = (us == limits.max) | (us == limits.min)
        known = True if fields.null is None else ~fields.null
        if ((us >= last) & ~infinite & known).any():
            raise OutOfRangeError("timestamp")
        return _array(fields, np.where(infinite, us, us + TIMESTAMP_EPOCH_US), type_.arrow)
    return _array(fields, us + TIMESTAMP_EPOCH_US, type_.arrow)


def _uuid(fields: Fields, _: ColumnType) -> pa.Array:
    octets = fields.messages.bytes[fields.starts[:, None] + np.arange(16)]
    characters = np.full((len(fields), _UUID_WIDTH), ord("-"), np.uint8)
    for first, last, column in _UUID_GROUPS:
        width = 2 * (last - first)
        characters[:, column : column + width] = _HEX[octets[:, first:last]].reshape(-1, width)
    offsets = np.arange(len(fields) + 1, dtype=np.int32) * _UUID_WIDTH
    return pa.Array.from_buffers(
        pa.string(), len(fields), [fields.validity(), pa.py_buffer(offsets), pa.py_buffer(characters)]
    )


_DECODERS: dict[Kind, Callable[[Fields, ColumnType], pa.Array]] = {
    Kind.BOOL: _bool,
    Kind.INT: _int,
    Kind.FLOAT: _float,
    Kind.DECIMAL: lambda fields, _: numeric_texts(fields),
    Kind.STRING: lambda fields, _: fields.texts(),
    Kind.ENUM: lambda fields, _: fields.texts(),
    Kind.JSON: lambda fields, _: fields.texts(),
    Kind.BYTES: lambda fields, _: fields.raw(),
    Kind.UUID: _uuid,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
}
