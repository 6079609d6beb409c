"""The bodies of requests."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from cdc_core import EVENT_TYPE, EVENTS_TYPE, ContractError, joined_values

_GZIP_LEVEL = 4
_GZIP_FORMAT = 31  # the largest window, with gzip's header; zlib leaves file name and time out of it
_ZSTD_LEVEL = 3
_EMPTY = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How messages become one body.

    `separator` is one byte after each message. After the last message it is omitted, except in `lines`, whose messages
    may already end with it.
    """

    content_type: str
    head: bytes = b""
    separator: bytes
    tail: bytes = b""
    """The end of a body that is not lines; `%d` in it is the number of messages."""
    lines: bool = False
    list_of_marks: bool = False
    """Whether a resolved mark has a body like a row, and not one of its own."""

    def values(self, messages: pa.Array) -> Values:
        """Return *messages*, each with its separator. Raises: ContractError for a null, which a body cannot hold."""
        ended = self.lines and len(messages) and (messages[0].as_py() or b"").endswith(b"\n")
        return Values.of(messages, b"" if ended else self.separator)

    def body(self, parts: Sequence[memoryview | bytes], count: int) -> bytes:
        """Return the body of *count* messages. *parts* together hold all of them, each with its separator."""
        if self.lines:
            return b"".join(parts)
        end = self.tail % count if b"%d" in self.tail else self.tail
        return b"".join((self.head, *parts[:-1], memoryview(parts[-1])[:-1], end))

    def mark(self, payload: bytes) -> bytes:
        """Return the body of a resolved mark."""
        return self.body([payload + self.separator], 1) if self.list_of_marks else payload

    def data(self, body: bytes, nbytes: int) -> bytes:
        """Return the *nbytes* bytes that `body` was made from."""
        if self.lines:
            return body
        return body[len(self.head) : len(self.head) + nbytes - 1] + self.separator


JSON = Format(content_type="application/json", head=b'{"payload":[', separator=b",", tail=b'],"length":%d}')
CSV = Format(content_type="text/csv", separator=b"\n", lines=True)
EVENT = Format(content_type=EVENT_TYPE, separator=b"", lines=True)
"""One event in each request."""
EVENTS = Format(content_type=EVENTS_TYPE, head=b"[", separator=b",", tail=b"]", list_of_marks=True)
EVENT_DATA = Format(content_type="application/json", separator=b"", lines=True)
"""The data of one event, whose attributes are headers."""


@dataclass(frozen=True, slots=True)
class Values:
    """Messages in one buffer, each with its separator.

    `lengths` are their bytes and `ends` their ends in the buffer, both with the separator.
    """

    data: memoryview
    lengths: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: pa.Array, separator: bytes) -> Values:
        """Return *values* joined. Raises: ContractError for a null, which a body cannot hold."""
        if values.null_count:
            raise ContractError(
                "the encoder returned a tombstone (a null value), which the body of a webhook cannot hold"
            )
        if values.type != pa.large_binary():
            values = values.cast(pa.large_binary())
        joined = pc.binary_join_element_wise(values, _EMPTY, pa.scalar(separator, pa.large_binary()))
        lengths = pc.binary_length(joined).to_numpy(zero_copy_only=False)
        return cls(memoryview(joined_values(joined)), lengths, np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def start(self, number: int) -> int:
        """Return where message *number* begins in the buffer."""
        return 0 if number == 0 else int(self.ends[number - 1])


def compressed(body: bytes, compression: str) -> bytes:
    """Return *body* in the form that is sent. The same body always gives the same bytes."""
    if compression == "gzip":
        return zlib.compress(body, _GZIP_LEVEL, _GZIP_FORMAT)
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(body)
    return body


def decompressed(body: bytes, compression: str) -> bytes:
    """Return the body that was passed to `compressed`."""
    if compression == "gzip":
        return zlib.decompress(body, _GZIP_FORMAT)
    if compression == "zstd":
        return zstandard.ZstdDecompressor().decompress(body)
    return body
