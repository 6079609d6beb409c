"""The fields of an envelope that are no columns: timestamps as text, the topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.values import integers

from cdc_core import RowBatch
from cdc_encoder_avro.pieces import Piece, joined
from cdc_encoder_avro.strings import string_pieces

__all__ = ["mvcc_timestamps", "timestamp_pieces"]


def timestamp_pieces(timestamps: pa.StructArray) -> list[Piece]:
    """Return a column of timestamps as unions of null and string: `<wall ns>.<logical, 10 digits>`.

    Rows of one transaction have one timestamp and stand together, so each run of equal ones is written once.
    """
    wall, logical = integers(timestamps.field("wall")), integers(timestamps.field("logical"))
    if len(wall) == 0:
        return [b""]
    first = np.ones(len(wall), np.bool_)
    first[1:] = (wall[1:] != wall[:-1]) | (logical[1:] != logical[:-1])
    walls = pa.array(wall[first]).cast(pa.large_string())
    logicals = pc.utf8_lpad(pa.array(logical[first]).cast(pa.large_string()), 10, "0")
    texts = pc.binary_join_element_wise(walls, logicals, pa.scalar(".", pa.large_string()))
    pieces = joined(string_pieces(texts), len(texts))
    if len(texts) == 1:
        return [pieces[0].as_py()]
    return [pieces if len(texts) == len(wall) else pieces.take(pa.array(np.cumsum(first) - 1))]


def mvcc_timestamps(rows: RowBatch) -> pa.StructArray:
    """Return when each row version was committed: where the source does not know it, when it was emitted."""
    updated = rows.column("updated")
    if "mvcc" not in rows.batch.schema.names:
        return updated
    mvcc = rows.column("mvcc")
    return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
