"""Columns of Avro ints and longs: zigzag, then seven bits in each byte, the least significant first."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cdc_column_texts import Bools, Ints

from cdc_encoder_avro.pieces import Piece, looked_up, ragged

__all__ = ["lengths", "long_bytes", "longs"]

_U64 = np.uint64
_TABLE_SIZE = 1 << 14
"""Smaller zigzag numbers, of one byte or two, are looked up."""
_MOST_BYTES = 10
_LOW_BITS = _U64(0x00FF_FFFF_FFFF_FFFF)
_CONTINUED = np.array([sum(0x80 << (8 * byte) for byte in range(min(width - 1, 8))) for width in range(11)], _U64)
"""By the width of a number: the continuation bits in its first eight bytes."""


def long_bytes(number: int) -> bytes:
    """Return *number* as an Avro long."""
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    data = bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*data, zigzag])


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
    widths = np.ones(len(zigzag), np.intp)
    greatest = int(zigzag.max())
    for width in range(1, _MOST_BYTES):
        if greatest >> 7 * width:
            widths += zigzag >= _U64(1 << 7 * width)
    widest = int(widths.max())
    start = 0 if branch is None else 1
    matrix = np.empty((len(zigzag), start + widest), np.uint8)
    eight = _seven_bits_a_byte(zigzag) | _CONTINUED[widths]
    matrix[:, start : start + 8] = eight.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :widest]
    if widest > 8:
        matrix[:, start + 8] = (zigzag >> _U64(56) & _U64(0x7F)) | (widths == 10).astype(_U64) << _U64(7)
    if widest > 9:
        matrix[:, start + 9] = zigzag >> _U64(63)
    if branch is not None:
        matrix[:, 0] = _index(branch)[0]
        widths += 1
        if valid is not None:
            matrix[~valid, 0] = 0
            widths[~valid] = 1
    same = int(widths.min()) == start + widest
    return ragged(matrix, None if same else np.arange(start + widest) < widths[:, np.newaxis])


def _seven_bits_a_byte(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the low 56 bits of each number, seven in each of eight bytes: divided into halves, quarters, eighths."""
    spread = numbers & _LOW_BITS
    for keep, move, bits in (
        (0x0000_0000_0FFF_FFFF, 0x00FF_FFFF_F000_0000, 4),
        (0x0000_3FFF_0000_3FFF, 0x0FFF_C000_0FFF_C000, 2),
        (0x007F_007F_007F_007F, 0x3F80_3F80_3F80_3F80, 1),
    ):
        spread = spread & _U64(keep) | (spread & _U64(move)) << _U64(bits)
    return spread


def _index(branch: int | None) -> bytes:
    return b"" if branch is None else long_bytes(branch)


@cache
def _table(branch: int | None) -> pa.Array:
    """Return the index of null, then the zigzag numbers in order, each after the index *branch*."""
    start = _index(branch)
    numbers = [start + long_bytes(zigzag >> 1 if zigzag % 2 == 0 else ~(zigzag >> 1)) for zigzag in range(_TABLE_SIZE)]
    return pa.array([b"\x00", *numbers], pa.large_binary())
