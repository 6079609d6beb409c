"""JSON strings, escaped as CockroachDB escapes them.

The quote, the backslash and the control characters below U+0020 are escaped: newline, return and tab in their short
form, the others as `\\u00xx`. No other character is escaped, not even U+007F and U+2028.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_column_texts.large_texts import LargeText
from cdc_column_texts.pieces import Piece, joined, or_null, series

_QUOTE, _BACKSLASH, _SPACE = ord('"'), ord("\\"), ord(" ")
_ESCAPES = {code: f"\\u{code:04x}" for code in range(_SPACE)} | {
    _BACKSLASH: "\\\\",
    _QUOTE: '\\"',
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


_IN_ORDER = {chr(code): _ESCAPES[code] for code in sorted(_ESCAPES, reverse=True)}
"""The backslash comes first because escapes contain it."""


def quoted(text: str) -> str:
    """Return the JSON string of *text*."""
    return f'"{text.translate(_ESCAPES)}"'


def quoted_column(array: pa.Array) -> list[Piece]:
    """Return the JSON strings of a string *array*, and `null` where it is null."""
    large = LargeText.replaced(array, _IN_ORDER)
    if large is not None:
        return ['"', large, '"']
    texts = series(array)
    for code in _to_escape(text_bytes(array)):
        texts = texts.str.replace_all(chr(code), _ESCAPES[code], literal=True)
    if texts.null_count() == 0:
        return ['"', texts, '"']
    return [or_null(joined(['"', texts, '"'], len(texts)))]


def text_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the concatenated UTF-8 bytes of all values of a string *array*, without copying them."""
    _, offsets, data = array.buffers()
    if len(array) == 0 or data is None or data.size == 0:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def _to_escape(data: npt.NDArray[np.uint8]) -> list[int]:
    """Return the characters in *data* that need escaping. The backslash comes first because escapes contain it."""
    found = data[(data < _SPACE) | (data == _QUOTE) | (data == _BACKSLASH)]
    return sorted(np.unique(found).tolist(), reverse=True)
