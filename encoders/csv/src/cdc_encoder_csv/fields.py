"""Columns become fields of CSV: SQL text, between quotes where that is needed."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pyarrow as pa
from cdc_column_texts import Piece, date_pieces, joined, series, timestamp_pieces
from cdc_column_texts.plain import plain_texts

from cdc_core import ColumnType, Kind
from cdc_encoder_csv.arrays import array_literals
from cdc_encoder_csv.years import sql_year

__all__ = ["field_texts", "quoted_name"]

_TO_QUOTE = r'[",\r\n]|^\s|\s$|^\x{FEFF}|^\\\.$|^$'
"""What a reader could take for something else: the last three are a mark of the encoding, which is no text at the
beginning of a file, the end of data to PostgreSQL, and NULL."""
_BARE = frozenset({Kind.BOOL, Kind.INT, Kind.FLOAT, Kind.BYTES, Kind.TIME})
"""Kinds whose texts have no character that needs quotes."""


def field_texts(array: pa.Array, type_: ColumnType, *, null: str) -> pl.Series:
    """Return the fields of a column of a `RowBatch`; what is null is *null*, and no other field is."""
    if type_.kind is Kind.ARRAY and type_.element is not None:
        array = array_literals(array, type_.element)
    write = _MOMENTS.get(type_.kind)
    texts = series(plain_texts(array, type_)) if write is None else _moments(write(array), array)
    if write is None and type_.kind not in _BARE:
        texts = _quoted(texts, texts.str.contains(_TO_QUOTE))
    if null:
        texts = _quoted(texts, texts == null)
    return texts.fill_null(null)


def quoted_name(name: str) -> str:
    """Return the field of a column's name in a header."""
    texts = pl.Series([name])
    return str(_quoted(texts, texts.str.contains(_TO_QUOTE)).item())


def _quoted(texts: pl.Series, where: pl.Series) -> pl.Series:
    """Return *texts* between quotes, those inside doubled, at the places of *where*."""
    if not where.any():
        return texts
    doubled = pl.lit('"') + pl.lit(texts).str.replace_all('"', '""', literal=True) + pl.lit('"')
    return pl.select(pl.when(pl.lit(where)).then(doubled).otherwise(pl.lit(texts))).to_series()


def _moments(pieces: list[Piece], array: pa.Array) -> pl.Series:
    """Return dates or timestamps as SQL has them: the year before 1 is 1 BC, not 0 or -1."""
    texts = joined(pieces, len(array))
    ancient = texts.str.starts_with("-") & (texts != "-infinity") | texts.str.starts_with("0000-")
    if ancient.any():
        places = ancient.arg_true()
        texts = texts.scatter(places, [sql_year(text) for text in texts.gather(places)])
    return texts if array.null_count == 0 else texts.set(pl.Series(array.is_null()), None)


_MOMENTS: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.DATE: lambda array: date_pieces(array, quote=""),
    Kind.TIMESTAMP: lambda array: timestamp_pieces(array, quote="", between=" ", zone=""),
    Kind.TIMESTAMPTZ: lambda array: timestamp_pieces(array, quote="", between=" ", zone="+00"),
}
