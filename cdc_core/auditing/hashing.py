"""Hashes of rows, by column. Equal values of the same Arrow type have equal hashes within this process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

__all__ = ["Hashes", "hashed"]

Hashes = npt.NDArray[np.uint64]


def hashed(columns: Sequence[pa.Array], *, rows: int, seed: int) -> Hashes:
    """Return one hash for each of the *rows* of *columns*. -0.0 is 0.0, and NaN is itself."""
    if not columns:
        return np.zeros(rows, np.uint64)
    frame = pl.from_arrow(pa.table({str(index): _plain(column) for index, column in enumerate(columns)}))
    assert isinstance(frame, pl.DataFrame)
    hashes: Hashes = frame.hash_rows(seed).to_numpy()
    return hashes


def _plain(column: pa.Array) -> pa.Array:
    """Return dates and times as numbers: Polars has neither 24:00:00 nor infinite dates."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32())
    if pa.types.is_time64(column.type) or pa.types.is_timestamp(column.type):
        return column.view(pa.int64())
    return column
