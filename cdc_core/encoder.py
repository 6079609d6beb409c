"""Encoders turn rows into bytes. They run inside the sink's task, on whole batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ContractError
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["Encoder", "EncoderContext", "EnvelopeOptions", "FileBody", "NewlineBody", "joined_lines", "joined_values"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeOptions:
    """What every message of a changefeed carries; the same for all encoders."""

    envelope: str = "wrapped"
    updated: bool = False
    diff: bool = False
    mvcc_timestamp: bool = False
    key_in_value: bool = False
    topic_in_value: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderContext:
    """What an encoder is built from. Picklable."""

    changefeed: str
    envelope: EnvelopeOptions
    options: Any
    """An instance of the registered options class."""
    output: str = "messages"
    """What the sink asks for, "messages" or "files"."""
    compression: str = "none"
    """What the sink's option `compression` says, for an encoder with `compresses`; "none" for others."""


class FileBody(ABC):
    """The body of one file that is being written; all its rows have one topic and one schema version.

    A `write` that raises EncodeError has added nothing: the body goes on without the rows of that call.
    """

    held_bytes: int = 0
    """Memory of rows that were written and whose bytes are not final yet, as those of a block that is not full."""

    @abstractmethod
    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        """Add *rows* and return the bytes of the body that are final now, possibly none."""

    @abstractmethod
    def finish(self) -> bytes | pa.Buffer:
        """Return the rest of the body. Called once, after the last `write`; a body without it is not valid."""


class Encoder(ABC):
    """Turns rows into messages or files. One instance serves one process.

    Constructors have no side effects. What an encoder supports (envelopes, messages or files) stands in its
    registration, so that an impossible combination is refused before anything starts.

    Raises, everywhere: EncodeError, naming table, column and key, when a value cannot be represented; the engine then
    gives the rows in smaller parts until the bad ones are alone. RetryableError when a service that the encoder needs
    is out of reach.
    """

    file_extension: str
    """Extension of files with its dot, `.ndjson`."""
    compresses: ClassVar[bool] = False
    """Whether files are compressed inside, as `context.compression` says. The sink then leaves them as they are."""

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    @abstractmethod
    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Return when rows of *tables*, each with its topic, can be encoded. Driver, before a run. Changes nothing.

        Raises: ConfigError for a type that has no representation, options that do not go together, a service that is
        out of reach or refuses.
        """

    @abstractmethod
    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Return one message per row, in order. Deterministic: the same rows give the same bytes."""

    @abstractmethod
    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the payload that tells a reader of *topic* that *timestamp* is resolved. Coordinator."""

    def open_body(self, topic: str) -> FileBody:
        """Return an empty file body for rows of *topic*. Encoders with a container of their own override this."""
        return NewlineBody(self, topic)


class NewlineBody(FileBody):
    """Messages' values, each followed by a newline."""

    def __init__(self, encoder: Encoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return joined_lines(self._encoder.encode(rows, topic=self._topic).value)

    def finish(self) -> bytes:
        return b""


def joined_lines(values: pa.Array) -> pa.Buffer:
    """Return the concatenation of binary *values*, each followed by a newline.

    Raises: ContractError for a null value, a tombstone, which no line of a file can stand for.
    """
    if values.null_count:
        raise ContractError("the encoder gave a tombstone (a null value) for a file of lines; it must refuse files")
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
