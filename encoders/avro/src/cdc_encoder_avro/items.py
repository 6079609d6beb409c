"""The items of JSON arrays, of whole columns at a time, as an Arrow column of the items' own type.

Numbers, booleans, dates and times have neither commas nor escapes in their JSON, so cutting at the commas finds them,
with all their digits. Other items are JSON strings. Items that are JSON themselves, of `jsonb[]` or of arrays of
composites, are cut out row by row in Python, which is slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import ColumnType, Kind
from cdc_encoder_avro.pieces import Ints, integers, valid_rows

__all__ = ["JSON_KINDS", "items_of"]

JSON_KINDS = frozenset({Kind.JSON, Kind.COMPOSITE})
"""Items of these kinds are JSON texts, which may be arrays themselves."""
_BLANKS = " \t\n\r"
_TWENTY_FOUR = "24:00:00"
_DAY_US = 86_400_000_000
_DECODER = json.JSONDecoder()


def items_of(array: pa.Array, element: ColumnType) -> tuple[pa.Array, Ints]:
    """Return the items of all rows of *array* behind one another, and how many each row has; 0 where it is null.

    The texts are arrays of one dimension.
    """
    texts = cast(pl.Series, pl.from_arrow(array))
    if element.kind in JSON_KINDS:
        lists = pl.Series([None if text is None else _raw_items(text) for text in texts], dtype=pl.List(pl.String))
        return _flat(lists)
    convert = _FROM_TOKENS.get(element.kind)
    if convert is not None:
        tokens, counts = _tokens(texts)
        return convert(tokens, element.arrow), counts
    items, counts = _flat(texts.str.json_decode(pl.List(pl.String)))
    return (_bytes(items) if element.kind is Kind.BYTES else items), counts


def _flat(lists: pl.Series) -> tuple[pa.Array, Ints]:
    array = lists.to_arrow(compat_level=pl.CompatLevel.oldest())
    return array.flatten(), integers(pc.list_value_length(array))


def _tokens(texts: pl.Series) -> tuple[pa.Array, Ints]:
    """Return the items without quotes."""
    bare = texts.str.strip_chars(f"[]{_BLANKS}")
    bare = bare.set(bare == "", None)
    tokens, counts = _flat(bare.str.replace_all('["\\s]', "").str.split(","))
    return pc.if_else(pc.equal(tokens, "null"), pa.scalar(None, tokens.type), tokens), counts


def _raw_items(text: str) -> list[str | None]:
    """Return the JSON texts of the items of one array."""
    items: list[str | None] = []
    place = _after_blanks(text, text.index("[") + 1)
    while text[place] != "]":
        _, end = _DECODER.raw_decode(text, place)
        item = text[place:end]
        items.append(None if item == "null" else item)
        place = _after_blanks(text, end)
        if text[place] == ",":
            place = _after_blanks(text, place + 1)
    return items


def _after_blanks(text: str, place: int) -> int:
    while text[place] in _BLANKS:
        place += 1
    return place


def _bytes(items: pa.Array) -> pa.Array:
    """Return the bytes of texts such as `\\x6162`."""
    digits = cast(pl.Series, pl.from_arrow(items)).str.slice(2)
    return digits.str.decode("hex").to_arrow(compat_level=pl.CompatLevel.oldest())


def _bools(tokens: pa.Array, type_: pa.DataType) -> pa.Array:
    return pc.equal(tokens, "true").cast(type_)


def _dates(tokens: pa.Array, type_: pa.DataType) -> pa.Array:
    return _moments(tokens, type_, np.iinfo(np.int32), unit="D")


def _timestamps(tokens: pa.Array, type_: pa.DataType) -> pa.Array:
    return _moments(pc.utf8_rtrim(tokens, "Z"), type_, np.iinfo(np.int64), unit="us")


def _times(tokens: pa.Array, type_: pa.DataType) -> pa.Array:
    whole_day = pc.fill_null(pc.equal(tokens, _TWENTY_FOUR), pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    texts = pc.if_else(pa.array(whole_day), pa.scalar("00:00:00", tokens.type), tokens)
    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01", tokens.type), texts, pa.scalar("T", tokens.type))
    times = _numbers(stamps, unit="us")
    return _typed(np.where(whole_day, _DAY_US, times), tokens, type_)


def _moments(tokens: pa.Array, type_: pa.DataType, limits: np.iinfo[np.int32 | np.int64], *, unit: str) -> pa.Array:
    numbers = np.empty(len(tokens), np.int64)
    special = pc.index_in(tokens, pa.array(["infinity", "-infinity"], tokens.type))
    finite = special.is_null().to_numpy(zero_copy_only=False)
    numbers[finite] = _numbers(tokens.filter(pa.array(finite)), unit=unit)
    numbers[~finite] = np.array([limits.max, limits.min])[special.drop_null().to_numpy()]
    return _typed(numbers, tokens, type_)


def _numbers(texts: pa.Array, *, unit: str) -> Ints:
    """Return ISO 8601 *texts*, of any year, as numbers of *unit* since 1970."""
    moments = np.array(texts.fill_null("NaT").to_pylist(), f"datetime64[{unit}]")
    return moments.view(np.int64)


def _typed(numbers: Ints, tokens: pa.Array, type_: pa.DataType) -> pa.Array:
    valid = valid_rows(tokens)
    mask = None if valid is None else ~valid
    storage = pa.int32() if type_.bit_width == 32 else pa.int64()
    narrowed = numbers if valid is None else np.where(valid, numbers, 0)
    return pa.array(narrowed, storage, mask=mask).view(type_)


_FROM_TOKENS: dict[Kind, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    Kind.BOOL: _bools,
    Kind.INT: lambda tokens, type_: tokens.cast(type_),
    Kind.FLOAT: lambda tokens, type_: tokens.cast(type_),
    Kind.DECIMAL: lambda tokens, type_: tokens.cast(type_),
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
