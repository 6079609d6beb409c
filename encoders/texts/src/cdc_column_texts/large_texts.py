"""The text of one large value, written piece by piece, so that no more than the text itself is in memory."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

LARGE_BYTES = 4 * 1024 * 1024
"""A single value above this size is a `LargeText`."""
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LargeText:
    """The text of the only row of a column: *write* turns each part of the value's bytes into a part of the text."""

    value: pa.Buffer
    write: Callable[[bytes], bytes]

    @classmethod
    def hexadecimal(cls, array: pa.Array) -> LargeText | None:
        """Return the hexadecimal digits of *array*, binary; None unless it is one large value."""
        return None if (value := _only_large(array)) is None else cls(value, binascii.hexlify)

    @classmethod
    def replaced(cls, array: pa.Array, texts: Mapping[str, str]) -> LargeText | None:
        """Return *array*, string, with characters of ASCII replaced, in the order of *texts*; None as above."""

        def write(part: bytes) -> bytes:
            for old, new in texts.items():
                part = part.replace(old.encode(), new.encode())
            return part

        return None if (value := _only_large(array)) is None else cls(value, write)

    def parts(self) -> Iterator[bytes]:
        for offset in range(0, self.value.size, _CHUNK_BYTES):
            yield self.write(self.value[offset : offset + _CHUNK_BYTES].to_pybytes())


def join_large(pieces: Sequence[str | pl.Series | LargeText]) -> pa.Array:
    """Return the text of the only row that *pieces* have, large_string; null if one of them is."""
    text = bytearray()
    for piece in pieces:
        if isinstance(piece, LargeText):
            for part in piece.parts():
                text += part
        elif isinstance(piece, str):
            text += piece.encode()
        elif piece.null_count():
            return pa.nulls(1, pa.large_string())
        else:
            text += piece.to_arrow(compat_level=pl.CompatLevel.newest())[0].as_buffer()
    bounds = np.array([0, len(text)], np.int64)
    return pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(text)])


def _only_large(array: pa.Array) -> pa.Buffer | None:
    if len(array) != 1 or array.null_count or array.nbytes < LARGE_BYTES:
        return None
    value: pa.Buffer = array[0].as_buffer()
    return value
