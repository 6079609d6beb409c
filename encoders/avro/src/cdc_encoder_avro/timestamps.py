"""Columns of `Timestamp`s as Avro strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import integers
from cdc_column_texts.binary import Piece, joined

from cdc_encoder_avro.strings import string_pieces

__all__ = ["timestamp_pieces"]


def timestamp_pieces(timestamps: pa.StructArray) -> list[Piece]:
    """Return a column of `Timestamp`s as unions of null and string: `<wall ns>.<logical, 10 digits>`.

    Rows of a transaction share a timestamp and follow one another, so each run of equal timestamps is written once.
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
