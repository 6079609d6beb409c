"""Finds the fields in the tuples of many messages, all messages at once: one step for each column, not for each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import ContractError

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_PADDING = 16


class Messages:
    """Consecutive whole messages in one buffer: message i is `starts[i]` to `ends[i]`.

    The buffer is a copy with padding at the end, so a fixed number of bytes can be read at any position in a message.
    """

    def __init__(self, messages: pa.Array | pa.ChunkedArray) -> None:
        if messages.null_count:
            raise ContractError("plugin 'postgres': a message in the log is null")
        chunks = messages.chunks if isinstance(messages, pa.ChunkedArray) else [messages]
        parts = [_bounds_and_data(chunk) for chunk in chunks if len(chunk)]
        bounds = np.zeros(1 + sum(len(each) - 1 for each, _ in parts), np.int64)
        done = 0
        for each, _ in parts:  # the first bound of a chunk is the last one of the chunk before
            bounds[done : done + len(each)] = each - each[0] + bounds[done]
            done += len(each) - 1
        self.bytes = np.zeros(bounds[-1] + _PADDING, np.uint8)
        place = 0
        for each, data in parts:
            size = each[-1] - each[0]
            if size:
                self.bytes[place : place + size] = np.frombuffer(data, np.uint8, size, each[0])
            place += size
        self.starts, self.ends = bounds[:-1], bounds[1:]
        self.buffer = pa.py_buffer(self.bytes)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """The first byte of each message."""
        return self.bytes[self.starts]

    def message(self, index: int) -> bytes:
        return self.bytes[self.starts[index] : self.ends[index]].tobytes()

    def numbers(self, type_: str, positions: Ints) -> npt.NDArray[np.int64]:
        """Return the big-endian integers of a type such as `>i4` at *positions*, widened to 64 bits.

        Unsigned 64-bit integers become the signed integers with the same bits.
        """
        return self.values(type_, positions).astype(np.int64)

    def values(self, type_: str, positions: Ints) -> npt.NDArray[np.generic]:
        """Return the values of a fixed-width type at *positions*, in the byte order of the type. Needs no alignment."""
        width = np.dtype(type_).itemsize
        everywhere = np.ndarray((len(self.bytes) - width + 1,), type_, self.bytes, strides=(1,))
        return everywhere[positions]


def _bounds_and_data(array: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    if pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    return np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4), data


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one column in many tuples: the bytes of each value, at rising positions."""

    messages: Messages
    starts: Ints
    lengths: Ints
    null: Mask | None
    """True for a field without a value: null, or unchanged. None when all fields have one."""
    unchanged: Mask | None
    """True for an unchanged TOAST value, which the log does not repeat. None when there are none."""
    binary: bool
    """Whether the values are in binary form; otherwise in text form."""

    def __len__(self) -> int:
        return len(self.starts)

    def validity(self) -> pa.Buffer | None:
        """Return the Arrow validity bitmap."""
        return None if self.null is None else pa.array(~self.null).buffers()[1]

    def texts(self, *, skip: int = 0) -> pa.StringArray:
        """Return the values as text, without their first *skip* bytes. Bytes that are not UTF-8 stay."""
        return self.raw(skip=skip).view(pa.string())

    def raw(self, *, skip: int = 0) -> pa.BinaryArray:
        """Return the bytes of the values, without their first *skip* bytes.

        The fields and the gaps between them form one array over the buffer of the messages. Taking every second element
        lets Arrow copy the bytes, without an index for each byte.
        """
        count = len(self)
        if count == 0:
            return pa.array([], pa.binary())
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = self.starts if skip == 0 else self.starts + (skip if self.null is None else skip * ~self.null)
        bounds[1::2] = self.starts + self.lengths
        if count == 1 and self.null is None:  # perhaps a very large value: it is not copied
            return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bounds), self.messages.buffer])
        every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self.messages.buffer])
        return every.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=self.null))

    def numbers(self, type_: str) -> npt.NDArray[np.generic]:
        """Return the values of a fixed-width type; an arbitrary number for a field without a value."""
        return self.messages.values(type_, self.starts)


def walk(messages: Messages, positions: Ints, count: int) -> tuple[list[Fields], Ints]:
    """Return the fields of *count* columns in the tuples that start at *positions*, and where each tuple ends.

    Raises: ContractError when the tuples do not have *count* columns, or when a column has values in both forms.
    """
    data = messages.bytes
    if (messages.numbers(">i2", positions) != count).any():
        raise ContractError(f"plugin 'postgres': a tuple in the log does not have the {count} columns of its table")
    positions = positions + 2
    columns = []
    for index in range(count):
        kinds = data[positions]
        lengths = messages.numbers(">i4", positions + 1)
        first = kinds[0] if len(kinds) else _TEXT
        if first in (_TEXT, _BINARY) and (kinds == first).all():
            starts = positions + 5
            columns.append(Fields(messages, starts, lengths, None, None, bool(first == _BINARY)))
            positions = starts + lengths
            continue
        null = (kinds == _NULL) | (kinds == _UNCHANGED)
        unchanged = kinds == _UNCHANGED
        binary = kinds == _BINARY
        if not (null | binary | (kinds == _TEXT)).all() or (binary.any() and not (null | binary).all()):
            raise ContractError(f"plugin 'postgres': column {index + 1} of a tuple of the log has an unknown form")
        lengths[null] = 0
        starts = positions + np.where(null, 1, 5)
        columns.append(
            Fields(messages, starts, lengths, null, unchanged if unchanged.any() else None, bool(binary.any()))
        )
        positions = starts + lengths
    return columns, positions
