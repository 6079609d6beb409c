"""Columns of variable-length integers: seven bits in each byte, the least significant first."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_column_texts.binary.pieces import ragged
from cdc_column_texts.numpy_columns import Bools

_U64 = np.uint64
_TABLE_SIZE = 1 << 14
"""Smaller numbers, of one byte or two, are looked up."""
_MAX_BYTES = 10
_LOW_BITS = _U64(0x00FF_FFFF_FFFF_FFFF)
_CONTINUED = np.array([sum(0x80 << (8 * byte) for byte in range(min(width - 1, 8))) for width in range(11)], _U64)
"""By the width of a number: the continuation bits in its first eight bytes."""


def varint_bytes(number: int) -> bytes:
    """Return *number*, which is not negative."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def varint_widths(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the number of bytes that each number takes."""
    widths = np.ones(len(numbers), np.intp)
    greatest = int(numbers.max()) if len(numbers) else 0
    for width in range(1, _MAX_BYTES):
        if greatest >> 7 * width:
            widths += numbers >= _U64(1 << 7 * width)
    return widths


def varint_matrix(
    numbers: npt.NDArray[np.uint64], widths: npt.NDArray[np.intp], *, start: int = 0
) -> npt.NDArray[np.uint8]:
    """Return the bytes of each number in a row, from column *start* on. *widths* are those of `varint_widths`.

    The columns before *start*, and those after the width of a number, are undefined.
    """
    widest = int(widths.max()) if len(widths) else 1
    matrix = np.empty((len(numbers), start + widest), np.uint8)
    eight = _seven_bits_a_byte(numbers) | _CONTINUED[widths]
    matrix[:, start : start + 8] = eight.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :widest]
    if widest > 8:
        matrix[:, start + 8] = (numbers >> _U64(56) & _U64(0x7F)) | (widths == 10).astype(_U64) << _U64(7)
    if widest > 9:
        matrix[:, start + 9] = numbers >> _U64(63)
    return matrix


def varint_column(numbers: npt.NDArray[np.uint64], *, valid: Bools | None) -> tuple[pa.Array, npt.NDArray[np.intp]]:
    """Return the bytes of each number, large_binary, and how many these are. Where *valid* is false, there are none."""
    widths = varint_widths(numbers)
    if valid is not None:
        widths = np.where(valid, widths, 0)
    if len(numbers) == 0 or int(numbers.max()) < _TABLE_SIZE:
        return _table().take(pa.array(numbers, mask=None if valid is None else ~valid)), widths
    matrix = varint_matrix(numbers, widths)
    width = matrix.shape[1]
    same = int(widths.min()) == width
    return ragged(matrix, None if same else np.arange(width) < widths[:, np.newaxis]), widths


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


@cache
def _table() -> pa.Array:
    return pa.array([varint_bytes(number) for number in range(_TABLE_SIZE)], pa.large_binary())
