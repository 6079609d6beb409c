"""Columns of Avro strings and bytes: the length as a long, then the bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from cdc_column_texts import Ints, valid_rows

from cdc_encoder_avro.pieces import Piece
from cdc_encoder_avro.varints import lengths, long_bytes

__all__ = ["string_bytes", "string_pieces"]


def string_pieces(array: pa.Array, *, branch: int | None = 1) -> list[Piece]:
    """Return the values of a string or binary *array*, each after index *branch* of its union. A null is index 0."""
    valid = valid_rows(array)
    sizes = _sizes(array)
    if valid is not None:
        sizes = np.where(valid, sizes, 0)
    return [lengths(sizes, branch=branch, valid=valid), array.cast(pa.large_binary())]


def string_bytes(text: str, *, branch: int) -> bytes:
    """Return one string, after the index *branch* of its union."""
    data = text.encode()
    return long_bytes(branch) + long_bytes(len(data)) + data


def _sizes(array: pa.Array) -> Ints:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offset_type = np.dtype("<i8" if wide else "<i4")
    if len(array) == 0:
        return np.empty(0, np.int64)
    offsets = np.frombuffer(array.buffers()[1], offset_type, len(array) + 1, array.offset * offset_type.itemsize)
    return np.diff(offsets).astype(np.int64)
