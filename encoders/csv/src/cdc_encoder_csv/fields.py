"""Columns as CSV fields: SQL text, quoted where necessary."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pyarrow as pa
from cdc_column_texts import Piece, date_pieces, joined, plain_texts, series, timestamp_pieces

from cdc_core import ColumnType, Kind
from cdc_encoder_csv.arrays import array_literals
from cdc_encoder_csv.years import sql_year

_TO_QUOTE = r'[",\r\n]|^\s|\s$|^\x{FEFF}|^\\\.$|^$'
"""Texts that a reader could misread. The last three are a byte order mark, PostgreSQL's end of data, and NULL."""
_BARE = frozenset({Kind.BOOL, Kind.INT, Kind.FLOAT, Kind.BYTES, Kind.TIME})
"""Kinds whose texts never need quotes."""


def field_texts(array: pa.Array, type_: ColumnType, *, null: str) -> pl.Series:
    """Return the fields of a column of a `RowBatch`. A null is the text *null*, and no other field is."""
    if type_.kind is Kind.ARRAY and type_.element is not None:
        array = array_literals(array, type_.element)
    write = _DATETIMES.get(type_.kind)
    texts = series(plain_texts(array, type_)) if write is None else _datetimes(write(array), array)
    if write is None and type_.kind not in _BARE:
        texts = _quoted(texts, texts.str.contains(_TO_QUOTE))
    if null:
        texts = _quoted(texts, texts == null)
    return texts.fill_null(null)


def quoted_name(name: str) -> str:
    """Return the field of a header that names a column."""
    texts = pl.Series([name])
    return str(_quoted(texts, texts.str.contains(_TO_QUOTE)).item())


def _quoted(texts: pl.Series, where: pl.Series) -> pl.Series:
    """Return *texts*, quoted where *where* is true. Inner quotes are doubled."""
    if not where.any():
        return texts
    doubled = pl.lit('"') + pl.lit(texts).str.replace_all('"', '""', literal=True) + pl.lit('"')
    return pl.select(pl.when(pl.lit(where)).then(doubled).otherwise(pl.lit(texts))).to_series()


def _datetimes(pieces: list[Piece], array: pa.Array) -> pl.Series:
    """Return dates or timestamps in SQL's form. The year before 1 is 1 BC."""
    texts = joined(pieces, len(array))
    ancient = texts.str.starts_with("-") & (texts != "-infinity") | texts.str.starts_with("0000-")
    if ancient.any():
        places = ancient.arg_true()
        texts = texts.scatter(places, [sql_year(text) for text in texts.gather(places)])
    return texts if array.null_count == 0 else texts.set(pl.Series(array.is_null()), None)


_DATETIMES: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.DATE: lambda array: date_pieces(array, quote=""),
    Kind.TIMESTAMP: lambda array: timestamp_pieces(array, quote="", between=" ", zone=""),
    Kind.TIMESTAMPTZ: lambda array: timestamp_pieces(array, quote="", between=" ", zone="+00"),
}
