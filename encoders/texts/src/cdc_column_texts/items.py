"""The items of JSON arrays, of whole columns at a time, as an Arrow column of the items' own type."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.splitting import split_arrays
from cdc_column_texts.values import Ints, integers, valid_rows
from cdc_core import ColumnType, Kind

__all__ = ["JSON_KINDS", "items_of"]

JSON_KINDS = frozenset({Kind.JSON, Kind.COMPOSITE})
"""Items of these kinds are JSON texts, which may be arrays themselves."""
_STRINGS = frozenset({Kind.STRING, Kind.ENUM, Kind.UUID, Kind.TIMETZ, Kind.INTERVAL, Kind.BYTES})
_TWENTY_FOUR = "24:00:00"
_DAY_US = 86_400_000_000


def items_of(array: pa.Array, element: ColumnType) -> tuple[pa.Array, Ints]:
    """Return the items of all rows of *array* behind one another, and how many each row has; 0 where it is null.

    The texts are arrays of one dimension.
    """
    if element.kind in _STRINGS:
        texts = cast(pl.Series, pl.from_arrow(array))
        lists = texts.str.json_decode(pl.List(pl.String)).to_arrow(compat_level=pl.CompatLevel.oldest())
        items = lists.flatten()
        return (_bytes(items) if element.kind is Kind.BYTES else items), integers(pc.list_value_length(lists))
    texts, present = split_arrays(array.drop_null())
    texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, texts.type), texts)
    counts = present
    valid = valid_rows(array)
    if valid is not None:
        counts = np.zeros(len(array), np.int64)
        counts[valid] = present
    convert = _FROM_TEXTS.get(element.kind)
    return (texts if convert is None else convert(pc.utf8_trim(texts, '"'), element.arrow)), counts


def _bytes(items: pa.Array) -> pa.Array:
    """Return the bytes of texts such as `\\x6162`."""
    digits = cast(pl.Series, pl.from_arrow(items)).str.slice(2)
    return digits.str.decode("hex").to_arrow(compat_level=pl.CompatLevel.oldest())


def _bools(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return pc.equal(texts, "true").cast(type_)


def _dates(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return _moments(texts, type_, np.iinfo(np.int32), unit="D")


def _timestamps(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return _moments(pc.utf8_rtrim(texts, "Z"), type_, np.iinfo(np.int64), unit="us")


def _times(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    whole_day = pc.fill_null(pc.equal(texts, _TWENTY_FOUR), pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    times = pc.if_else(pa.array(whole_day), pa.scalar("00:00:00", texts.type), texts)
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01", texts.type), times, pa.scalar("T", texts.type))
    return _typed(np.where(whole_day, _DAY_US, _numbers(stamps, unit="us")), texts, type_)


def _moments(texts: pa.Array, type_: pa.DataType, limits: np.iinfo[np.int32 | np.int64], *, unit: str) -> pa.Array:
    numbers = np.empty(len(texts), np.int64)
    special = pc.index_in(texts, pa.array(["infinity", "-infinity"], texts.type))
    finite = special.is_null().to_numpy(zero_copy_only=False)
    numbers[finite] = _numbers(texts.filter(pa.array(finite)), unit=unit)
    numbers[~finite] = np.array([limits.max, limits.min])[special.drop_null().to_numpy()]
    return _typed(numbers, texts, type_)


def _numbers(texts: pa.Array, *, unit: str) -> Ints:
    """Return ISO 8601 *texts*, of any year, as numbers of *unit* since 1970."""
    moments = np.array(texts.fill_null("NaT").to_pylist(), f"datetime64[{unit}]")
    return moments.view(np.int64)


def _typed(numbers: Ints, texts: pa.Array, type_: pa.DataType) -> pa.Array:
    valid = valid_rows(texts)
    mask = None if valid is None else ~valid
    storage = pa.int32() if type_.bit_width == 32 else pa.int64()
    narrowed = numbers if valid is None else np.where(valid, numbers, 0)
    return pa.array(narrowed, storage, mask=mask).view(type_)


_FROM_TEXTS: dict[Kind, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    Kind.BOOL: _bools,
    Kind.INT: lambda texts, type_: texts.cast(type_),
    Kind.FLOAT: lambda texts, type_: texts.cast(type_),
    Kind.DECIMAL: lambda texts, type_: texts.cast(type_),
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
