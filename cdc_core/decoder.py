"""Decoders read what an encoder wrote: for conformance tests, audits and small consumers, not for hot paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.encoder import EncoderContext
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["DecodedRow", "Decoder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """A row as a consumer understands it. What the envelope leaves out is None.

    Values are those that `RowBatch.column(...).to_pylist()` gives for the same row. `key` holds the primary key's
    values in key order, whatever part of the message they were read from; `key_in_value` and `topic_in_value` are what
    the options of these names put into the value. `after` is None for a delete.
    """

    key: tuple[Any, ...] | None
    after: Mapping[str, Any] | None
    before: Mapping[str, Any] | None = None
    updated: Timestamp | None = None
    mvcc: Timestamp | None = None
    key_in_value: tuple[Any, ...] | None = None
    topic_in_value: str | None = None


class Decoder(ABC):
    """Reads the messages and files of one encoder, built from the same context. Constructors connect to nothing.

    *schema* says what the values mean. Rows of another version of the table are read too: columns that it does not have
    come in the form that the format gives them. Raises: ValueError when the bytes are not the encoder's.
    """

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    @abstractmethod
    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        """Return the row that one message is about; a *value* of None is a tombstone."""

    @abstractmethod
    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        """Return the rows of a file's body, in order."""

    @abstractmethod
    def resolved(self, value: bytes | None) -> Timestamp | None:
        """Return the timestamp when *value*, of a message or a resolved file, is a resolved mark, None for a row's."""
