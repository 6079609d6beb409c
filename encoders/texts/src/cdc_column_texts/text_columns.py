"""Columns as plain texts: fields of CSV, and text columns of Parquet. Lists as texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.datetimes import date_pieces, time_pieces, timestamp_pieces
from cdc_column_texts.floats import float_pieces
from cdc_column_texts.numpy_columns import Ints, integers
from cdc_column_texts.pieces import Piece, joined, series
from cdc_core import ColumnType, Kind


def plain_texts(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Return the texts of a column of a `RowBatch`, string, null where it is null.

    Dates and times have the form of ISO 8601. Bytes are hexadecimal after `\\\\x`. Finite floats are written as in
    JavaScript, the others as `NaN`, `Infinity` and `-Infinity`. A column of texts is returned unchanged.
    """
    write = _WRITERS.get(type_.kind)
    if write is None:
        return array
    return with_nulls_of(array, text_column(write(array), len(array)))


def with_nulls_of(array: pa.Array, texts: pa.Array) -> pa.Array:
    """Return *texts*, null where *array* is null."""
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def hlc_texts(timestamps: pa.StructArray) -> pa.Array:
    """Return the texts of a column of `Timestamp`s, string: `<wall ns>.<logical, 10 digits>`."""
    texts, places = hlc_runs(timestamps)
    return texts if places is None else texts.take(places)


def hlc_runs(timestamps: pa.StructArray) -> tuple[pa.Array, pa.Array | None]:
    """Return the text of each run of equal timestamps, and the place of each row's; None when no two are equal.

    Rows of a transaction share a timestamp and follow one another, so each run needs to be written only once.
    """
    wall, logical = integers(timestamps.field("wall")), integers(timestamps.field("logical"))
    first = np.ones(len(wall), np.bool_)
    first[1:] = (wall[1:] != wall[:-1]) | (logical[1:] != logical[:-1])
    walls, logicals = (pa.array(numbers[first]).cast(pa.string()) for numbers in (wall, logical))
    texts = pc.binary_join_element_wise(walls, pc.utf8_lpad(logicals, 10, "0"), pa.scalar(".", pa.string()))
    return texts, None if len(texts) == len(wall) else pa.array(np.cumsum(first) - 1)


def text_column(pieces: list[Piece], rows: int) -> pa.Array:
    """Return the joined *pieces* as an Arrow column, string."""
    return joined(pieces, rows).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def list_bounds(counts: Ints) -> npt.NDArray[np.int32]:
    """Return the offsets of lists with *counts* items, as Arrow stores them."""
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def list_texts(items: pa.Array, counts: Ints, *, brackets: str, nulls_of: pa.Array) -> pa.Array:
    """Return each list as text, its *items* between *brackets*; null where *nulls_of* is null."""
    lists = pa.ListArray.from_arrays(pa.array(list_bounds(counts)), items)
    first, last, nothing = (pa.scalar(text, pa.string()) for text in (*brackets, ""))
    texts = pc.binary_join_element_wise(first, pc.binary_join(lists, ", "), last, nothing)
    return with_nulls_of(nulls_of, texts)


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
