"""Cuts the JSON arrays of a whole column into the texts of their items, by their bytes, without reading these."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.values import Bools, Ints

__all__ = ["split_arrays"]

_Bytes = npt.NDArray[np.uint8]
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OPENING, _CLOSING = b"[{", b"]}"
_BLANKS = " \t\n\r"


def split_arrays(array: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the JSON texts of the items of all rows behind one another, and how many each row has.

    *array* holds valid JSON arrays as string, without nulls. Items that are null are the text `null`.
    """
    if len(array) == 0:
        return pa.array([], pa.large_string()), np.empty(0, np.int64)
    bounds = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    data = np.frombuffer(array.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    bounds -= bounds[0]
    places = _structure(data)
    codes = data[places]
    closes = _any_of(codes, _CLOSING)
    steps = _any_of(codes, _OPENING).astype(np.int64) - closes
    # JSON is balanced, so each row begins at depth 0 again; a closing bracket counts with what it closes
    outermost = np.cumsum(steps) + closes == 1
    places, ends = places[outermost], (steps <= 0)[outermost]
    items = _between(data, places, np.flatnonzero(ends))
    counts = np.diff(np.searchsorted(places[ends], bounds))
    return _without_empty(items, counts)


def _structure(data: _Bytes) -> Ints:
    """Return where brackets and commas stand that are not in strings."""
    found = _any_of(data, _OPENING) | _any_of(data, _CLOSING) | (data == _COMMA)
    if (data == _QUOTE).any():
        found &= ~_in_strings(data)
    return np.flatnonzero(found)


def _in_strings(data: _Bytes) -> Bools:
    """Return which bytes stand in a string, its opening quote included and its closing one not."""
    quotes = data == _QUOTE
    backslashes = data == _BACKSLASH
    if backslashes.any():
        places = np.arange(len(data))
        last_other = np.maximum.accumulate(np.where(backslashes, -1, places))
        quoted = np.flatnonzero(quotes)
        run = quoted - 1 - last_other[quoted - 1]
        quotes[quoted[run % 2 == 1]] = False
    return np.bitwise_xor.accumulate(quotes)


def _any_of(data: _Bytes, codes: bytes) -> Bools:
    found: Bools = (data == codes[0]) | (data == codes[1])
    return found


def _between(data: _Bytes, places: Ints, ends: Ints) -> pa.Array:
    """Return what stands before those of *places* that *ends* says, each back to the place before it."""
    if len(ends) == 0:
        return pa.array([], pa.large_string())
    # the data cut in two kinds by turns, items and what is between them
    cuts = np.stack([places[ends - 1] + 1, places[ends]], axis=1).ravel()
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.large_string(), len(cuts) - 1, buffers)
    return pc.utf8_trim(texts.take(pa.array(np.arange(0, len(cuts), 2))), _BLANKS)


def _without_empty(items: pa.Array, counts: Ints) -> tuple[pa.Array, Ints]:
    """Return items and counts without the one empty text that an array without items gives."""
    empty = pc.equal(pc.binary_length(items), 0).to_numpy(zero_copy_only=False)
    if not empty.any():
        return items, counts
    rows = np.repeat(np.arange(len(counts)), counts)
    counts[rows[empty]] = 0
    return items.filter(pa.array(~empty)), counts
