"""Texts of whole columns, put together from pieces.

A piece is either one text that every row has in common or a column of texts without nulls, one per row. The text of a
row is the concatenation of its pieces. Columns of JSON become messages by adding pieces around them, so that each byte
of a message is copied once, at the end.
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
    """Return *array* as a Polars series; its values are not copied."""
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
    """Return *texts* with the JSON text `null` in place of nulls."""
    return texts.fill_null(NULL) if texts.null_count() else texts
