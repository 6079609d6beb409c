"""Columns as JSON texts, as CockroachDB writes them, except exponents of floats and dates before the year 1."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pyarrow as pa

from cdc_column_texts.datetimes import date_pieces, time_pieces, timestamp_pieces
from cdc_column_texts.errors import NoRepresentationError
from cdc_column_texts.floats import float_pieces
from cdc_column_texts.json_strings import quoted_column, text_bytes
from cdc_column_texts.large_texts import LargeText
from cdc_column_texts.pieces import NULL, Piece, joined, or_null, series
from cdc_core import ColumnType, Kind

JSON_NULL_OBJECT = '{"__crdb_json_null__": true}'
SPECIAL_DECIMALS = ["NaN", "Infinity", "-Infinity"]
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_LINE_ENDS = "\n\r"
_BLANKS = " \t\n\r"


def json_pieces(array: pa.Array, type_: ColumnType, *, null_as_object: bool = False) -> list[Piece]:
    """Return the JSON texts of a column; nulls become `null`.

    With *null_as_object*, a JSON null (not a SQL NULL) becomes `JSON_NULL_OBJECT`. Raises: NoRepresentationError for a
    decimal that is not a number.
    """
    if type_.kind is Kind.JSON:
        return _json(array, null_as_object=null_as_object)
    return _PIECES[type_.kind](array)


def _plain(array: pa.Array) -> list[Piece]:
    return [or_null(series(array).cast(pl.String))]


def _decimal(array: pa.Array) -> list[Piece]:
    texts = series(array)
    if texts.str.contains(_NUMBER).all():
        return [or_null(texts)]
    wrong = ~(texts.str.contains(_NUMBER) | texts.is_in(SPECIAL_DECIMALS))
    row = wrong.arg_max()
    if wrong.any() and row is not None:
        raise NoRepresentationError(row, f"the decimal {texts[row]!r} is not a number")
    special = pl.Series(SPECIAL_DECIMALS)
    return [or_null(texts.replace(special, '"' + special + '"'))]


def _bytes(array: pa.Array) -> list[Piece]:
    large = LargeText.hexadecimal(array)
    if large is not None:
        return ['"\\\\x', large, '"']
    texts = series(array).bin.encode("hex")
    if texts.null_count() == 0:
        return ['"\\\\x', texts, '"']
    return [or_null(joined(['"\\\\x', texts, '"'], len(texts)))]


def _json(array: pa.Array, *, null_as_object: bool = False) -> list[Piece]:
    """Return JSON texts on one line each. A line end can only be between tokens, and becomes a blank."""
    large = LargeText.replaced(array, dict.fromkeys(_LINE_ENDS, " "))
    if large is not None and not null_as_object:
        return [large]
    texts = series(array)
    data = text_bytes(array)
    for end in _LINE_ENDS:
        if (data == ord(end)).any():
            texts = texts.str.replace_all(end, " ", literal=True)
    if null_as_object:
        is_null = (texts.str.strip_chars(_BLANKS) == NULL).fill_null(value=False)
        texts = texts.set(is_null, JSON_NULL_OBJECT)
    return [or_null(texts)]


_PIECES: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.BOOL: _plain,
    Kind.INT: _plain,
    Kind.FLOAT: float_pieces,
    Kind.DECIMAL: _decimal,
    Kind.STRING: quoted_column,
    Kind.BYTES: _bytes,
    Kind.UUID: quoted_column,
    Kind.DATE: date_pieces,
    Kind.TIME: time_pieces,
    Kind.TIMETZ: quoted_column,
    Kind.TIMESTAMP: lambda array: timestamp_pieces(array, zone=""),
    Kind.TIMESTAMPTZ: lambda array: timestamp_pieces(array, zone="Z"),
    Kind.INTERVAL: quoted_column,
    Kind.ENUM: quoted_column,
    Kind.ARRAY: _json,
    Kind.COMPOSITE: _json,
}
