"""Columns as plain texts: fields of CSV, and text columns of Parquet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.datetimes import date_pieces, hlc_pieces, time_pieces, timestamp_pieces
from cdc_column_texts.floats import float_pieces
from cdc_column_texts.numpy_columns import integers
from cdc_column_texts.pieces import Piece, joined, series
from cdc_core import ColumnType, Kind

__all__ = ["hlc_texts", "plain_texts", "text_column", "with_nulls_of"]


def plain_texts(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Return the texts of a column of a `RowBatch`, string, null where it is null.

    Dates and times have the form of ISO 8601. Bytes are hexadecimal after `\\\\x`. Finite floats are
    written as in JavaScript, the others as `NaN`, `Infinity` and `-Infinity`. A column of texts is returned unchanged.
    """
    write = _WRITERS.get(type_.kind)
    if write is None:
        return array
    return with_nulls_of(array, text_column(write(array), len(array)))


def with_nulls_of(array: pa.Array, texts: pa.Array) -> pa.Array:
    """Return *texts*, null where *array* is null."""
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def hlc_texts(timestamps: pa.StructArray) -> pa.Array:
    """Return the texts of a column of `Timestamp`s, string: `<wall ns>.<logical, 10 digits>`.

    Rows of a transaction share a timestamp and follow one another, so each run of equal timestamps is written once.
    """
    wall, logical = integers(timestamps.field("wall")), integers(timestamps.field("logical"))
    first = np.ones(len(wall), np.bool_)
    first[1:] = (wall[1:] != wall[:-1]) | (logical[1:] != logical[:-1])
    if first.all():
        return text_column(hlc_pieces(timestamps), len(timestamps))
    runs = timestamps.filter(pa.array(first))
    return text_column(hlc_pieces(runs), len(runs)).take(pa.array(np.cumsum(first) - 1))


def text_column(pieces: list[Piece], rows: int) -> pa.Array:
    """Return the joined *pieces* as an Arrow column, string."""
    return joined(pieces, rows).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _bytes(array: pa.Array) -> list[Piece]:
    return ["\\x", series(array).bin.encode("hex").fill_null("")]


_WRITERS: dict[Kind, Callable[[pa.Array], list[Piece]]] = {
    Kind.BOOL: lambda array: [series(array).cast(pl.String).fill_null("")],
    Kind.INT: lambda array: [series(array).cast(pl.String).fill_null("")],
    Kind.FLOAT: lambda array: float_pieces(array, quote=""),
    Kind.BYTES: _bytes,
    Kind.DATE: lambda array: date_pieces(array, quote=""),
    Kind.TIME: lambda array: time_pieces(array, quote=""),
    Kind.TIMESTAMP: lambda array: timestamp_pieces(array, quote="", zone=""),
    Kind.TIMESTAMPTZ: lambda array: timestamp_pieces(array, quote="", zone="Z"),
}
