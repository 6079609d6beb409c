"""Bodies of files: what an encoder writes when its sink asks for files instead of messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ContractError
from cdc_core.rows import RowBatch


class FileBody(ABC):
    """The body of one file that is being written. All its rows have one topic and one schema version.

    Several bodies are open at the same time. A `write` that raises EncodeError has added nothing: the body continues
    without the rows of that call. An encoder that `compresses` does so here, as `EncoderContext.compression` says.
    """

    held_bytes: int = 0
    """Memory taken by written rows whose bytes are not final yet, such as those of an unfinished block. Sinks include
    it in their memory limits.
    """

    @abstractmethod
    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        """Add *rows* and return the bytes of the body that are final now, possibly none."""

    def finish(self) -> bytes | pa.Buffer:
        """Return the rest of the body. Called at most once, after the last `write`; a body without it is not valid."""
        return b""


class NewlineBody(FileBody):
    """Lines of text or bytes: *encode* returns the value of each row, and each is followed by a newline."""

    def __init__(self, encode: Callable[[RowBatch], pa.Array]) -> None:
        self._encode = encode

    def write(self, rows: RowBatch) -> pa.Buffer:
        return joined_lines(self._encode(rows))


def joined_lines(values: pa.Array) -> pa.Buffer:
    """Return the concatenation of binary *values*, each followed by a newline.

    Raises: ContractError for a null value: a line of a file cannot be a tombstone.
    """
    if values.null_count:
        raise ContractError(
            "the encoder returned a tombstone (a null value), which a file of lines cannot hold; the encoder must"
            " refuse files"
        )
    if values.type != pa.large_binary():
        values = values.cast(pa.large_binary())
    return joined_values(pc.binary_join_element_wise(values, _EMPTY, _NEWLINE))


def joined_values(values: pa.Array) -> pa.Buffer:
    """Return the concatenation of large_binary *values*, a view of their own buffer."""
    _, bounds, data = values.buffers()
    if len(values) == 0 or data is None:
        return pa.py_buffer(b"")
    offsets = pa.Array.from_buffers(pa.int64(), len(values) + 1, [None, bounds], offset=values.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return data.slice(first, last - first)


_EMPTY = pa.scalar(b"", pa.large_binary())
_NEWLINE = pa.scalar(b"\n", pa.large_binary())
