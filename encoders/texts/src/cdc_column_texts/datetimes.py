"""Texts of dates and times, of a whole column at once.

A column is divided into days, seconds of the day and the two halves of the fraction. The text of each part is looked up
in a small table. Only years before 0 are written one by one. Years have at least four digits. There is a year 0, as in
ISO 8601.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from cdc_column_texts.binary.pieces import distinct
from cdc_column_texts.numpy_columns import Bools, Ints, integers, valid_rows
from cdc_column_texts.pieces import NULL, Piece, joined, or_null, series
from cdc_core import Kind

_DAY_US = 86_400_000_000
_DAY_S = 86_400
_QUOTE = '"'
_INFINITIES = {np.iinfo(np.int64).max: "infinity", np.iinfo(np.int64).min: "-infinity"}
SPECIAL_NUMBERS: dict[Kind, dict[int, str]] = {
    Kind.DATE: {np.iinfo(np.int32).max: "infinity", np.iinfo(np.int32).min: "-infinity"},
    Kind.TIME: {_DAY_US: "24:00:00"},
    Kind.TIMESTAMP: _INFINITIES,
    Kind.TIMESTAMPTZ: _INFINITIES,
}
"""By kind, the numbers in Arrow that the types of many formats cannot represent, and their texts."""


def date_pieces(array: pa.Array, *, quote: str = _QUOTE) -> list[Piece]:
    """Return the texts of a date32 *array* between quotes, `null` where it is null."""
    days = integers(array)
    special = _special(array, days, np.iinfo(np.int32))
    return [_days(days, special, quote=quote, close=quote)]


def time_pieces(array: pa.Array, *, quote: str = _QUOTE) -> list[Piece]:
    """Return the texts of a time64[us] *array* between quotes, `null` where it is null. A whole day is 24:00:00."""
    pieces = [quote, *_time_of_day(integers(array), None, start="", end=quote)]
    valid = valid_rows(array)
    return pieces if valid is None else [or_null(joined(pieces, len(array)).set(pl.Series(~valid), None))]


def timestamp_pieces(array: pa.Array, *, zone: str, quote: str = _QUOTE, between: str = "T") -> list[Piece]:
    """Return the texts of a timestamp[us] *array* between quotes, `null` where it is null.

    *between* separates date and time, and *zone* follows the time. Infinities have neither.
    """
    us = integers(array)
    special = _special(array, us, np.iinfo(np.int64))
    days = us // _DAY_US
    time_of_day = _time_of_day(us - days * _DAY_US, special, start=between, end=f"{zone}{quote}")
    return [_days(days, special, quote=quote, close=""), *time_of_day]


def hlc_pieces(timestamps: pa.StructArray) -> list[Piece]:
    """Return the texts of a column of `Timestamp`s, without quotes: `<wall ns>.<logical, 10 digits>`."""
    wall, logical = timestamps.field("wall"), timestamps.field("logical")
    walls, logicals = integers(wall), integers(logical)
    if len(walls) == 0:
        return [""]
    pieces: list[Piece] = [str(walls[0]) if (walls == walls[0]).all() else series(wall).cast(pl.String)]
    if (logicals == logicals[0]).all():
        return [*pieces, f".{logicals[0]:010d}"]
    return [*pieces, ".", series(logical).cast(pl.String).str.zfill(10)]


def _special(array: pa.Array, values: Ints, limits: np.iinfo) -> Ints | None:
    """Return 1, 2 and 3 where a value is null, infinity and -infinity, otherwise 0; None when all are 0."""
    special = np.zeros(len(values), np.int64)
    special[values == limits.max] = 2
    special[values == limits.min] = 3
    valid = valid_rows(array)
    if valid is not None:
        special[~valid] = 1
    return special if special.any() else None


def _days(days: Ints, special: Ints | None, *, quote: str, close: str) -> Piece:
    """Return *quote*, the date and *close*; for a special value, its whole text."""
    known = days if special is None else days[special == 0]
    if len(known) == 0:
        dates, rows = np.empty(0, np.int64), known
    else:
        first, last = int(known.min()), int(known.max())
        if first == last and special is None:
            return _day_texts(known[:1], quote, close)[0]
        dates, rows = distinct(known)
    table = _day_texts(dates, quote, close)
    if special is not None:
        places = len(table) - 1 + special
        places[special == 0] = rows
        table, rows = [*table, NULL, f"{quote}infinity{quote}", f"{quote}-infinity{quote}"], places
    return _lookup(pl.Series(table, dtype=pl.String), rows)


def _day_texts(days: Ints, quote: str, close: str) -> list[str]:
    texts = np.datetime_as_string(days.astype("datetime64[D]")).tolist()
    return [f"{quote}{_long_year(text) if text[0] == '-' else text}{close}" for text in texts]


def _long_year(text: str) -> str:
    year, month, day = text[1:].split("-")
    return f"-{int(year):04d}-{month}-{day}"


def _time_of_day(us: Ints, special: Ints | None, *, start: str, end: str) -> list[Piece]:
    """Return *start*, the time, its fraction without trailing zeros, and *end*; nothing for special values."""
    seconds = us // 1_000_000
    fraction = us - seconds * 1_000_000
    if special is not None:
        seconds, fraction = np.where(special == 0, seconds, _DAY_S + 1), np.where(special == 0, fraction, 0)
    pieces: list[Piece] = [_lookup(_seconds(start), seconds)]
    if fraction.any():
        millis = fraction // 1000
        micros = fraction - millis * 1000
        pieces.append(_lookup(_MILLIS, np.where(micros == 0, millis, millis + 1000)))
        if micros.any():
            pieces.append(_lookup(_MICROS, micros))
    if special is None:
        return [*pieces, end]
    return [*pieces, _lookup(pl.Series([end, ""]), special != 0)]


@cache
def _seconds(start: str) -> pl.Series:
    clock = [f"{minute // 60:02d}:{minute % 60:02d}:" for minute in range(24 * 60)]
    texts = [f"{start}{minute}{second:02d}" for minute in clock for second in range(60)]
    return pl.Series([*texts, f"{start}24:00:00", ""])


_MILLIS = pl.Series([f".{n:03d}".rstrip("0").rstrip(".") for n in range(1000)] + [f".{n:03d}" for n in range(1000)])
"""The first three digits of the fraction. From 1000 on, the same when other digits follow."""
_MICROS = pl.Series([f"{n:03d}".rstrip("0") for n in range(1000)])
"""The last three digits of the fraction."""


def _lookup(table: pl.Series, rows: Ints | Bools) -> pl.Series:
    return table.gather(pl.Series(rows.astype(np.uint32)))
