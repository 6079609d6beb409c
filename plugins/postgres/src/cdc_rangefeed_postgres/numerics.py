"""Converts numeric from PostgreSQL's binary form to its text form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_rangefeed_postgres.fields import Fields, Ints

_NEGATIVE, _SPECIAL_BIT = 0x4000, 0x8000
_SPECIAL = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_HEAD_BYTES = 8
_GROUP = 4
"""Decimal digits in one digit of the base 10,000."""
_DIGITS = np.frombuffer("".join(f"{n:04d}" for n in range(10_000)).encode(), np.uint8)
_WIDTHS = np.array([len(str(n)) for n in range(10_000)])
_AT_ONCE_BYTES = 1 << 20
"""How much text is written at once. Each byte of it needs about a hundred bytes of memory while it is computed."""


def numeric_texts(fields: Fields) -> pa.StringArray:
    """Return the text of each value, as numeric_out writes it.

    A value has a head and then digits of base 10,000. The head has the number of digits, the weight of the first one,
    the sign, and the number of decimals to show. Head and first digit give the length of each text. Then the bytes of
    all texts are computed at once: for each byte its value, its place in the value, and the digit there.
    """
    if len(fields) == 0:
        return pa.array([], pa.string())
    heads = _Heads.of(fields)
    ends = np.cumsum(heads.lengths)
    texts = np.empty(ends[-1], np.uint8)
    first = 0
    while first < len(fields):
        begin = ends[first] - heads.lengths[first]
        last = max(first + 1, int(np.searchsorted(ends, begin + _AT_ONCE_BYTES, side="right")))
        texts[begin : ends[last - 1]] = _digits(heads.rows(first, last), fields)
        first = last
    for row in np.flatnonzero(heads.special):
        texts[ends[row] - heads.lengths[row] : ends[row]] = np.frombuffer(_SPECIAL[int(heads.sign[row])], np.uint8)
    offsets = np.zeros(len(fields) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(
        pa.string(), len(fields), [fields.validity(), pa.py_buffer(offsets), pa.py_buffer(texts)]
    )


@dataclass(frozen=True, slots=True)
class _Heads:
    starts: Ints
    count: Ints
    weight: Ints
    sign: Ints
    whole: Ints
    """Digits before the point."""
    lengths: Ints
    special: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, fields: Fields) -> _Heads:
        messages, starts = fields.messages, fields.starts
        count, sign = messages.numbers(">i2", starts), messages.numbers(">u2", starts + 4)
        weight = np.where(count == 0, -1, messages.numbers(">i2", starts + 2))
        scale, leading = messages.numbers(">u2", starts + 6), messages.numbers(">u2", starts + _HEAD_BYTES)
        whole = np.where(weight >= 0, weight * _GROUP + _WIDTHS[leading % 10_000], 1)
        lengths = (sign == _NEGATIVE) + whole + np.where(scale > 0, scale + 1, 0)
        special = sign & _SPECIAL_BIT != 0
        if fields.null is not None:
            special &= ~fields.null
            lengths[fields.null] = 0
        if special.any():
            for code, text in _SPECIAL.items():
                lengths[special & (sign == code)] = len(text)
        return cls(starts, count, weight, sign, whole, lengths, special)

    def rows(self, first: int, last: int) -> _Heads:
        some = slice(first, last)
        return _Heads(
            self.starts[some],
            self.count[some],
            self.weight[some],
            self.sign[some],
            self.whole[some],
            self.lengths[some],
            self.special[some],
        )


def _digits(heads: _Heads, fields: Fields) -> npt.NDArray[np.uint8]:
    """Return the texts of some values in sequence. Special values get arbitrary bytes of the right length."""
    rows = np.repeat(np.arange(len(heads.lengths)), heads.lengths)
    firsts = np.cumsum(heads.lengths) - heads.lengths + (heads.sign == _NEGATIVE)
    place = np.arange(len(rows)) - firsts[rows]  # 0 is the first digit, -1 the minus sign
    point = heads.whole[rows]
    decimal = place - point - (place > point)  # 0 is the first digit after the point, -1 the last before it
    group = decimal // _GROUP
    index = group + heads.weight[rows] + 1
    known = (index >= 0) & (index < heads.count[rows])
    digit = np.zeros(len(rows), np.int64)
    digit[known] = fields.messages.numbers(">u2", heads.starts[rows[known]] + _HEAD_BYTES + 2 * index[known])
    texts: npt.NDArray[np.uint8] = _DIGITS[digit % 10_000 * _GROUP + (decimal - group * _GROUP)]
    texts[place == point] = ord(".")
    texts[place == -1] = ord("-")
    return texts
