"""Decimals of a declared precision: the unscaled number in two's complement, big-endian.

As in fastavro, a number takes as few bytes as its magnitude and a sign bit need, so -128 takes two bytes. NaN and
infinities are refused, or strings, the second branch of the union.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation, localcontext
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import SPECIAL_DECIMALS, NoRepresentationError, valid_rows
from cdc_column_texts.binary import Piece, ragged

from cdc_encoder_avro.strings import string_bytes
from cdc_encoder_avro.varints import long_bytes

_STRING = 2
_SPECIAL = pa.array(SPECIAL_DECIMALS)
_MAX_DIGITS_OF_8, _MAX_DIGITS_OF_16, _MAX_DIGITS_OF_32 = 18, 38, 76
_SHORT = np.dtype([("branch", "u1"), ("size", "u1"), ("value", ">i8")])


def decimal_pieces(array: pa.Array, precision: int, scale: int, *, special_values: Literal["error", "string"]) -> Piece:
    """Return the unions of the decimal texts in *array*. Raises: NoRepresentationError.

    Arrow has at most 76 digits. The values of a column with more digits are written one by one.
    """
    special = pc.is_in(array, _SPECIAL)
    first = pc.index(special, value=True).as_py()
    if first >= 0 and special_values == "error":
        raise NoRepresentationError(
            first, f"Avro's type has no '{array[first]}'; set avro_special_values = 'string' to write it as text"
        )
    if precision > _MAX_DIGITS_OF_32:
        return _one_by_one(array, precision, scale)
    if first >= 0:
        numbers = pc.if_else(special, pa.scalar(None, array.type), array)
        rest = _numbers(numbers, precision, scale)
        texts = [string_bytes(text, branch=_STRING) for text in SPECIAL_DECIMALS]
        table = pa.concat_arrays([rest, pa.array(texts, pa.large_binary())])
        places = np.arange(len(array))
        which = pc.index_in(array, _SPECIAL)
        rows = np.flatnonzero(which.is_valid().to_numpy(zero_copy_only=False))
        places[rows] = len(array) + which.drop_null().to_numpy()
        return table.take(pa.array(places))
    return _numbers(array, precision, scale)


def _numbers(array: pa.Array, precision: int, scale: int) -> pa.Array:
    type_ = (pa.decimal128 if precision <= _MAX_DIGITS_OF_16 else pa.decimal256)(precision, scale)
    try:
        numbers = array.cast(type_)
    except pa.ArrowInvalid:
        return _one_by_one(array, precision, scale)
    valid = valid_rows(array)
    width = type_.bit_width // 8
    words = np.zeros((0, width // 8), np.int64)
    if len(numbers):
        words = np.frombuffer(numbers.buffers()[1], "<i8", len(numbers) * width // 8, numbers.offset * width)
        words = words.reshape(-1, width // 8)
    if valid is not None:
        words = np.where(valid[:, np.newaxis], words, 0)
    return _short(words[:, 0], valid) if precision <= _MAX_DIGITS_OF_8 else _long(words, valid)


def _short(numbers: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return numbers of at most 18 digits."""
    sizes = np.ones(len(numbers), np.int64)
    magnitudes = np.abs(numbers)
    greatest = int(magnitudes.max(initial=0))
    for bits in range(7, 63, 8):
        if greatest >> bits:
            sizes += magnitudes >= 1 << bits
    values = np.empty(len(numbers), _SHORT)
    values["branch"] = 2
    values["size"] = sizes << 1
    values["value"] = numbers << 8 * (8 - sizes)
    matrix = values.view(np.uint8).reshape(-1, _SHORT.itemsize)
    return ragged(matrix, _kept(matrix, 2 + sizes, valid))


def _kept(
    matrix: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_]:
    """Return the mask of the first *sizes* bytes of each row. Rows that are not valid become the one byte of null."""
    if valid is not None:
        matrix[~valid, 0] = 0
        sizes = np.where(valid, sizes, 1)
    return np.arange(matrix.shape[1]) < sizes[:, np.newaxis]


def _long(words: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return numbers of two or four words, the least significant first."""
    rows, count = words.shape
    width = 8 * count
    sizes = _byte_counts(words)
    matrix = np.empty((rows, 2 + width), np.uint8)
    matrix[:, 0] = 2
    matrix[:, 1] = sizes << 1
    matrix[:, 2:] = words[:, ::-1].astype(">i8").view(np.uint8).reshape(rows, width)
    keep = np.ones(matrix.shape, np.bool_)
    keep[:, 2:] = np.arange(width) >= (width - sizes)[:, np.newaxis]
    if valid is not None:
        matrix[~valid, 0] = 0
        keep[~valid, 1:] = False
    return ragged(matrix, keep)


def _byte_counts(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of bytes that each magnitude and a sign bit take."""
    negative = words[:, -1] < 0
    carry = negative.astype(np.uint64)
    counts = np.ones(len(words), np.int64)
    for place in range(words.shape[1]):
        word = words[:, place].view(np.uint64)
        magnitude = np.where(negative, ~word, word) + carry
        carry &= magnitude == 0
        if magnitude.any():
            more = sum((magnitude >= np.uint64(1 << bits)).astype(np.int64) for bits in range(7, 64, 8))
            counts = np.where(magnitude != 0, 8 * place + 1 + more, counts)
    return counts


def _one_by_one(array: pa.Array, precision: int, scale: int) -> pa.Array:
    """Return numbers with more digits than Arrow supports, or some that Arrow refused.

    Raises: NoRepresentationError for one that is not of the declared type.
    """
    texts = array.to_pylist()
    return pa.array([_one(row, text, precision, scale) for row, text in enumerate(texts)], pa.large_binary())


def _one(row: int, text: str | None, precision: int, scale: int) -> bytes:
    if text is None:
        return b"\x00"
    if text in SPECIAL_DECIMALS:
        return string_bytes(text, branch=_STRING)
    with localcontext(prec=max(len(text) + scale, 1) + 1):
        try:
            scaled = Decimal(text).scaleb(scale)
            number = int(scaled)
        except (InvalidOperation, ValueError):
            raise NoRepresentationError(row, f"the decimal '{text[:80]}' is not a number") from None
    if number != scaled or abs(number) >= 10**precision:
        raise NoRepresentationError(
            row, f"'{text[:80]}' is not a decimal of the declared precision {precision} and scale {scale}"
        )
    data = number.to_bytes((abs(number).bit_length() + 8) // 8, "big", signed=True)
    return b"\x02" + long_bytes(len(data)) + data
