"""The bytes of whole columns, joined from pieces.

A piece is either bytes that all rows share, or a large_binary array with the bytes of each row, where null means empty.
The bytes of a row are the concatenation of its pieces. Pieces are only joined at the end, so each byte of a message is
copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.numpy_columns import Bools, Ints
from cdc_core import joined_values

Piece: TypeAlias = bytes | pa.Array
_EMPTY = pa.scalar(b"", pa.large_binary())


def joined(pieces: Sequence[Piece], rows: int) -> pa.Array:
    """Return the bytes of all *rows*, large_binary without nulls."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    arguments = [pa.scalar(piece, pa.large_binary()) if isinstance(piece, bytes) else piece for piece in merged]
    if all(isinstance(piece, bytes) for piece in merged):
        return pa.repeat(arguments[0] if arguments else _EMPTY, rows)
    return pc.binary_join_element_wise(*arguments, _EMPTY, null_handling="replace", null_replacement="")


def ragged(matrix: npt.NDArray[np.uint8], keep: Bools | None) -> pa.Array:
    """Return the bytes of each row of *matrix* where *keep* is true; all bytes when it is None."""
    rows, width = matrix.shape
    if keep is None:
        return binary(np.arange(0, rows * width + 1, width, dtype=np.int64), matrix)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.count_nonzero(keep, axis=1), out=offsets[1:])
    return binary(offsets, matrix[keep])


def binary(offsets: Ints, data: npt.NDArray[Any]) -> pa.Array:
    """Return a large_binary array of *data*, divided at *offsets*."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def offsets_of(array: pa.Array) -> Ints:
    """Return the offsets of the values of a large_binary *array* in their concatenation, and its length."""
    if len(array) == 0:
        return np.zeros(1, np.int64)
    offsets: Ints = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    first: np.int64 = offsets[0]
    return offsets - first


def grouped(items: pa.Array, counts: Ints) -> pa.Array:
    """Return the bytes of *counts* *items* in each row, large_binary, one after the other."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return binary(offsets_of(items)[ends], np.frombuffer(joined_values(items), np.uint8))


def looked_up(table: pa.Array, places: npt.NDArray[Any]) -> pa.Array:
    """Return the entry of *table* at each of *places*."""
    return table.take(pa.array(places))


def byte_sizes(array: pa.Array) -> Ints:
    """Return the number of bytes of each value of a string or binary *array*. That of a null is undefined."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offset_type = np.dtype("<i8" if wide else "<i4")
    if len(array) == 0:
        return np.empty(0, np.int64)
    offsets = np.frombuffer(array.buffers()[1], offset_type, len(array) + 1, array.offset * offset_type.itemsize)
    return np.diff(offsets).astype(np.int64)


def distinct(values: Ints) -> tuple[Ints, npt.NDArray[np.intp]]:
    """Return the distinct *values* in ascending order, and the index of each value among them."""
    first, last = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if last - first > 16 * len(values):
        found, places = np.unique(values, return_inverse=True)
        return found, places.astype(np.intp, copy=False)
    seen = np.zeros(last - first + 1, np.bool_)
    seen[values - first] = True
    return np.flatnonzero(seen) + first, (np.cumsum(seen) - 1)[values - first]
