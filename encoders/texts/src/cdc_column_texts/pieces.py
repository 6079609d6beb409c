"""Texts of whole columns, joined from pieces.

A piece is either one text that all rows share, or a column with one text for each row. The text of a row is the
concatenation of its pieces. Pieces are only joined at the end, so each byte of a message is copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import polars as pl
import pyarrow as pa

__all__ = ["NULL", "Piece", "joined", "or_null", "series"]

Piece = str | pl.Series
NULL = "null"


def series(array: pa.Array) -> pl.Series:
    """Return *array* as a Polars series, without copying its values."""
    return cast(pl.Series, pl.from_arrow(array))


def joined(pieces: Sequence[Piece], rows: int) -> pl.Series:
    """Return the texts of all *rows*. A null in a piece makes the row null."""
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


def or_null(texts: pl.Series) -> pl.Series:
    """Return *texts* with nulls replaced by the JSON text `null`."""
    return texts.fill_null(NULL) if texts.null_count() else texts
