"""Columns of Avro ints and longs: zigzag, then seven bits in each byte, the least significant first."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cdc_column_texts import Bools, Ints
from cdc_column_texts.binary import Piece, looked_up, ragged, varint_bytes, varint_matrix, varint_widths

_U64 = np.uint64
_TABLE_SIZE = 1 << 14
"""Smaller zigzag numbers, of one byte or two, are looked up."""


def long_bytes(number: int) -> bytes:
    """Return *number* as an Avro long."""
    return varint_bytes(number << 1 if number >= 0 else ~(number << 1))


def longs(values: Ints, *, branch: int | None, valid: Bools | None = None) -> Piece:
    """Return *values* as Avro longs, each after the index *branch* of its union unless that is None.

    Where *valid* is false, only the index 0 of null is written, and the value must be 0.
    """
    zigzag = (values << 1 ^ (values >> 63)).view(_U64)
    if len(zigzag) == 0 or int(zigzag.max()) < _TABLE_SIZE:
        places = zigzag + _U64(1) if valid is None else np.where(valid, zigzag + _U64(1), _U64(0))
        return looked_up(_table(branch), places)
    return _spread(zigzag, branch=branch, valid=valid)


def lengths(sizes: Ints, *, branch: int | None, valid: Bools | None = None) -> Piece:
    """Return the sizes of strings or bytes, as `longs` does; plain bytes when all are equal."""
    if len(sizes) and valid is None and (sizes == sizes[0]).all():
        return _index(branch) + long_bytes(int(sizes[0]))
    return longs(sizes, branch=branch, valid=valid)


def _spread(zigzag: npt.NDArray[np.uint64], *, branch: int | None, valid: Bools | None) -> pa.Array:
    widths = varint_widths(zigzag)
    start = 0 if branch is None else 1
    matrix = varint_matrix(zigzag, widths, start=start)
    if branch is not None:
        matrix[:, 0] = _index(branch)[0]
        widths += 1
        if valid is not None:
            matrix[~valid, 0] = 0
            widths[~valid] = 1
    width = matrix.shape[1]
    same = int(widths.min()) == width
    return ragged(matrix, None if same else np.arange(width) < widths[:, np.newaxis])


def _index(branch: int | None) -> bytes:
    return b"" if branch is None else long_bytes(branch)


@cache
def _table(branch: int | None) -> pa.Array:
    """Return the index of null, then the zigzag numbers in order, each after the index *branch*."""
    start = _index(branch)
    numbers = [start + long_bytes(zigzag >> 1 if zigzag % 2 == 0 else ~(zigzag >> 1)) for zigzag in range(_TABLE_SIZE)]
    return pa.array([b"\x00", *numbers], pa.large_binary())
