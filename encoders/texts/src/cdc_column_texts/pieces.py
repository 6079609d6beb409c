"""Texts of whole columns, joined from pieces.

A piece is one text that all rows share, a column with one text for each row, or the large text of an only row. The
text of a row is the concatenation of its pieces. Pieces are only joined at the end, so each byte of a message is copied
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import polars as pl
import pyarrow as pa

from cdc_column_texts.large_texts import LargeText, join_large

Piece = str | pl.Series | LargeText
NULL = "null"


def series(array: pa.Array) -> pl.Series:
    """Return *array* as a Polars series, without copying its values."""
    return cast(pl.Series, pl.from_arrow(array))


def joined(pieces: Sequence[Piece], rows: int) -> pl.Series:
    """Return the texts of all *rows*. A null in a piece makes the row null."""
    if any(isinstance(piece, LargeText) for piece in pieces):
        return series(join_large(pieces))
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if all(isinstance(piece, str) for piece in merged):
        return pl.Series(["".join(cast("list[str]", merged))], dtype=pl.String).new_from_index(0, rows)
    if len(merged) == 1:
        return cast(pl.Series, merged[0])
    return pl.select(pl.concat_str([pl.lit(piece) for piece in merged])).to_series()


def joined_bytes(pieces: Sequence[Piece], rows: int) -> pa.Array:
    """Return what `joined` returns as an Arrow column, large_binary."""
    if any(isinstance(piece, LargeText) for piece in pieces):
        return join_large(pieces).cast(pa.large_binary())
    return joined(pieces, rows).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())


def or_null(texts: pl.Series) -> pl.Series:
    """Return *texts* with nulls replaced by the JSON text `null`."""
    return texts.fill_null(NULL) if texts.null_count() else texts
