"""Decodes values in PostgreSQL's text form, from the log or from `::text`.

The session must have DateStyle ISO, TimeZone UTC, IntervalStyle postgres, bytea_output hex and extra_float_digits 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import ColumnType, Kind
from cdc_rangefeed_postgres.datetimes import days_since_1970, us_since_1970

_Ints = npt.NDArray[np.int64]
_SECOND_US = 1_000_000
_HEX_VALUES = np.zeros(256, np.uint8)
_HEX_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_MAX_TIME_LENGTH = len("12:34:56.123456")


def decode_text(texts: pa.StringArray, type_: ColumnType) -> pa.Array:
    """Return the values of a column as `type_.arrow`. The kind is neither array nor composite.

    Raises: OutOfRangeError for a timestamp.
    """
    decode = _DECODERS.get(type_.kind)
    return texts if decode is None else decode(texts, type_)


def _cast(texts: pa.StringArray, type_: ColumnType) -> pa.Array:
    return texts.cast(type_.arrow)


def _bool(texts: pa.StringArray, _: ColumnType) -> pa.Array:
    return pc.equal(texts, "t")


def _bytes(texts: pa.StringArray, _: ColumnType) -> pa.Array:
    offsets, characters = _characters(texts)
    lengths = np.diff(offsets)
    valid = _valid(texts)
    ends = np.cumsum(np.where(valid, lengths // 2 - 1, 0))
    # Two digits make a byte. The byte made of the prefix `\x` of each value is left out.
    octets = _HEX_VALUES[characters[0::2]] << 4 | _HEX_VALUES[characters[1::2]]
    prefixes = (offsets[:-1][valid] - offsets[0]) // 2
    kept = np.ones(len(octets), np.bool_)
    kept[prefixes] = False
    bounds = np.zeros(len(texts) + 1, np.int32)
    bounds[1:] = ends
    return pa.Array.from_buffers(
        pa.binary(), len(texts), [_validity(texts), pa.py_buffer(bounds), pa.py_buffer(octets[kept])]
    )


def _time(texts: pa.StringArray, type_: ColumnType) -> pa.Array:
    padded = pc.utf8_rpad(texts, _MAX_TIME_LENGTH, "0")  # 12:34:56 -> 12:34:560000000, 12:34:56.5 -> 12:34:56.500000
    offsets, characters = _characters(padded.drop_null())
    table = characters.reshape(len(offsets) - 1, _MAX_TIME_LENGTH).astype(np.int64) - ord("0")
    units = np.zeros(_MAX_TIME_LENGTH, np.int64)
    units[[0, 1, 3, 4, 6, 7]] = np.array([36_000, 3_600, 600, 60, 10, 1]) * _SECOND_US
    units[9:] = 10 ** np.arange(5, -1, -1)
    return _spread(table @ units, texts).view(type_.arrow)


def _dates(texts: pa.StringArray, type_: ColumnType) -> pa.Array:
    return _datetimes(texts, type_.arrow, regular=len("2020-01-31"), limits=np.iinfo(np.int32), parse=days_since_1970)


def _timestamps(texts: pa.StringArray, type_: ColumnType) -> pa.Array:
    regular = len("2020-01-31 01:02:03.123456+00")
    return _datetimes(texts, type_.arrow, regular=regular, limits=np.iinfo(np.int64), parse=us_since_1970)


def _datetimes(
    texts: pa.StringArray,
    type_: pa.DataType,
    *,
    regular: int,
    limits: np.iinfo,
    parse: Callable[[str], int],
) -> pa.Array:
    """Decode dates or timestamps: years AD of four digits with Arrow, all others and infinities one by one."""
    offsets, characters = _characters(texts)
    lengths = np.diff(offsets)
    unusual = lengths > regular
    some = lengths > 4
    at = offsets[:-1][some] - offsets[0]
    unusual[some] |= (characters[at + 4] != ord("-")) | (characters[at] == ord("i"))
    unusual[some] |= characters[offsets[1:][some] - offsets[0] - 1] == ord("C")
    if texts.null_count:
        unusual &= _valid(texts)
    if not unusual.any():
        return texts.cast(type_)
    plain = pc.if_else(pa.array(unusual), None, texts).cast(type_)
    values = np.zeros(len(texts), np.int64)
    for row in np.flatnonzero(unusual):
        text = texts[row].as_py()
        if text.endswith("infinity"):
            values[row] = limits.min if text[0] == "-" else limits.max
        else:
            values[row] = parse(text)
    width = pa.int32() if limits.bits == 32 else pa.int64()
    return pc.if_else(pa.array(unusual), pa.array(values).cast(width).view(type_), plain)


def _characters(texts: pa.StringArray) -> tuple[_Ints, npt.NDArray[np.uint8]]:
    """Return the offsets of *texts*, and all characters from the first offset to the last."""
    if len(texts) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, bounds, data = texts.buffers()
    offsets = np.frombuffer(bounds, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return offsets, octets[offsets[0] : offsets[-1]]


def _valid(texts: pa.StringArray) -> npt.NDArray[np.bool_]:
    return np.asarray(texts.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _validity(texts: pa.StringArray) -> pa.Buffer | None:
    return None if texts.null_count == 0 else texts.is_valid().buffers()[1]


def _spread(values: _Ints, texts: pa.StringArray) -> pa.Array:
    """Return *values*, one for each of *texts* that is not null, with nulls for the others."""
    if texts.null_count == 0:
        return pa.array(values)
    valid = _valid(texts)
    everywhere = np.zeros(len(texts), np.int64)
    everywhere[valid] = values
    return pa.array(everywhere, mask=~valid)


_DECODERS: dict[Kind, Callable[[pa.StringArray, ColumnType], pa.Array]] = {
    Kind.BOOL: _bool,
    Kind.INT: _cast,
    Kind.FLOAT: _cast,
    Kind.BYTES: _bytes,
    Kind.DATE: _dates,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
