"""Reads the plain texts of a whole column, exactly: the inverse of `text_columns.plain_texts`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.numpy_columns import Ints, valid_rows
from cdc_column_texts.pieces import series
from cdc_core import ColumnType, Kind, RowBatch

_TWENTY_FOUR = "24:00:00"
_DAY_US = 86_400_000_000


def column_of_texts(texts: pa.Array, type_: ColumnType) -> pa.Array:
    """Return the column of a `RowBatch` whose plain texts are *texts*, string or large_string.

    Raises: ValueError for a text that is not a value of the type.
    """
    read = _READERS.get(type_.kind)
    return texts.cast(type_.arrow) if read is None else read(texts, type_.arrow)


def timestamps_of_texts(texts: pa.Array) -> pa.StructArray:
    """Return a column of `Timestamp`s from texts `<wall ns>.<logical, 10 digits>`, without nulls.

    Raises: ValueError for any other text.
    """
    if not pc.all(pc.match_substring_regex(texts, r"^[0-9]+\.[0-9]{10}$"), min_count=0).as_py():
        raise ValueError("a value is not a timestamp of the form <wall ns>.<logical, 10 digits>")
    walls, logicals = pc.utf8_slice_codeunits(texts, 0, -11), pc.utf8_slice_codeunits(texts, -10)
    return RowBatch.timestamps(walls.cast(pa.int64()), logicals.cast(pa.int32()))


def _bytes(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the bytes of texts such as `\\x6162`."""
    column = series(texts)
    if not column.str.starts_with("\\x").all():
        raise ValueError("a text is not bytes: it does not begin with \\x")
    digits = column.str.slice(2).str.decode("hex", strict=False)
    if digits.null_count() != column.null_count():
        raise ValueError("a text is not bytes: it contains characters that are not hexadecimal digits")
    return cast(pa.Array, digits.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(type_))


def _bools(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pc.all(pc.is_in(texts, pa.array(["true", "false", None], texts.type)), min_count=0).as_py():
        raise ValueError("a text is neither true nor false")
    return pc.equal(texts, "true").cast(type_)


def _dates(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:  # infinities, and years that do not have four digits
        return _datetimes(texts, type_, np.iinfo(np.int32), unit="D")


def _timestamps(texts: pa.Array, type_: pa.TimestampType) -> pa.Array:
    texts = pc.utf8_rtrim(texts, "Z")
    try:
        return texts.cast(pa.timestamp("us")).view(type_)
    except pa.ArrowInvalid:
        return _datetimes(texts, type_, np.iinfo(np.int64), unit="us")


def _times(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    whole_day = pc.fill_null(pc.equal(texts, _TWENTY_FOUR), pa.scalar(value=False))
    times = pc.if_else(whole_day, pa.scalar("00:00:00", texts.type), texts)
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01", texts.type), times, pa.scalar("T", texts.type))
    us = stamps.cast(pa.timestamp("us")).view(pa.int64())
    return pc.if_else(whole_day, pa.scalar(_DAY_US, pa.int64()), us).view(type_)


def _datetimes(texts: pa.Array, type_: pa.DataType, limits: np.iinfo[np.int32 | np.int64], *, unit: str) -> pa.Array:
    numbers = np.empty(len(texts), np.int64)
    special = pc.index_in(texts, pa.array(["infinity", "-infinity"], texts.type))
    finite = special.is_null().to_numpy(zero_copy_only=False)
    numbers[finite] = _numbers(texts.filter(pa.array(finite)), unit=unit)
    numbers[~finite] = np.array([limits.max, limits.min])[special.drop_null().to_numpy()]
    return _typed(numbers, texts, type_)


def _numbers(texts: pa.Array, *, unit: str) -> Ints:
    """Return ISO 8601 *texts* of any year as numbers of *unit* since 1970."""
    values = np.array(texts.fill_null("NaT").to_pylist(), f"datetime64[{unit}]")
    return values.view(np.int64)


def _typed(numbers: Ints, texts: pa.Array, type_: pa.DataType) -> pa.Array:
    valid = valid_rows(texts)
    mask = None if valid is None else ~valid
    storage = pa.int32() if type_.bit_width == 32 else pa.int64()
    narrowed = numbers if valid is None else np.where(valid, numbers, 0)
    return pa.array(narrowed, storage, mask=mask).view(type_)


_READERS: dict[Kind, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    Kind.BOOL: _bools,
    Kind.BYTES: _bytes,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
