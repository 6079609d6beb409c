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

__all__ = ["Piece", "binary", "joined", "looked_up", "offsets_of", "ragged"]

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


def looked_up(table: pa.Array, places: npt.NDArray[Any]) -> pa.Array:
    """Return the entry of *table* at each of *places*."""
    return table.take(pa.array(places))
