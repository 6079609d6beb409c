"""Encoders turn rows into bytes. They run inside the sink's task, on whole batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.envelope import Envelope
from cdc_core.file_body import FileBody, NewlineBody
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["Encoder", "EncoderContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderContext:
    """What an encoder is built from. Picklable."""

    changefeed: str
    envelope: Envelope
    options: Any
    """An instance of the registered options class."""
    output: str = "messages"
    """What the sink asks for, "messages" or "files"."""
    compression: str = "none"
    """How to compress files, for an encoder whose registration says `compresses`; "none" for all others."""


class Encoder(ABC):
    """Turns rows into messages or files. One instance serves one process; a sink calls it from one thread at a time.

    An encoder must write `encode` and `encode_resolved`; everything else has a default. It is one class although the
    driver checks it, tasks encode with it and the coordinator encodes resolved marks with it: all three need the same
    schemas, and an encoder keeps nothing but these.

    Constructors have no side effects and connect to nothing. The registration says what the encoder supports
    (envelopes, messages or files), so that an impossible combination is refused before anything starts.

    Raises, everywhere: EncodeError, which names table, column and key, when a value has no representation: the engine
    then passes the rows in smaller parts until the bad ones are alone. RetryableError when a service that the encoder
    needs is out of reach.
    """

    file_extension: str = ".ndjson"
    """Extension of files, with its dot."""

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:  # noqa: B027 (has a default)
        """Return when rows of *tables*, each with its topic, can be encoded.

        Driver, before a run and by `cdc check`. Changes nothing. By default every table can be encoded.

        Raises: ConfigError for a type that has no representation, options that do not go together, or a service that is
        out of reach or refuses.
        """

    @abstractmethod
    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Return one message for each row, in order. Task. Deterministic: the same rows give the same bytes."""

    @abstractmethod
    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the message that tells a reader of *topic* that *timestamp* is resolved. Coordinator."""

    def open_body(self, topic: str) -> FileBody:
        """Return an empty file body for rows of *topic*. Task, of a sink that asks for files.

        By default a file holds the messages' values, one a line. Override it for a container such as Avro or Parquet.
        """
        return NewlineBody(lambda rows: self.encode(rows, topic=topic).value)
