"""Encoders turn rows into bytes, whole batches at once."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.cloudevents import CloudEvents
from cdc_core.enriched import SourceFacts
from cdc_core.envelope import Envelope
from cdc_core.file_body import FileBody, NewlineBody
from cdc_core.message_keys import keyed_rows, keyed_schema
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderContext:
    """What an encoder and its decoder are created from. Picklable."""

    changefeed: str
    envelope: Envelope
    options: Any
    """An instance of the registered options class."""
    output: str = "messages"
    """What the sink needs, "messages" or "files"."""
    preview: bool = False
    """Whether the messages are only looked at: then a schema registry is asked, and nothing is registered."""
    compression: str = "none"
    """How to compress files, for an encoder whose registration says `compresses`; "none" for all others."""
    source: SourceFacts = field(default_factory=SourceFacts)
    """Where the rows come from, for the member `source` of envelope `enriched`."""
    events: CloudEvents | None = None
    """How messages are events in envelope `cloudevents`; None in any other."""
    key_column: str | None = None
    """The column that is the key of messages, of an encoder with `rekeys`; None for the primary key."""
    clock: Callable[[], int] = time.time_ns
    """Returns nanoseconds since 1970 for the member `ts_ns` of envelope `enriched`. No other use is allowed."""


class Encoder(ABC):
    """Turns rows into messages or files. Each process has its own instance, used by one thread at a time.

    An encoder must define `encode` and `encode_resolved`. Everything else has a default. The driver checks it, tasks
    encode rows with it, and the coordinator encodes resolved marks. It is one class because all of these need the same
    schemas, and an encoder has no other state.

    A row can have columns in `unavailable`, whose values the source does not know. Its message lacks these columns and
    names them, or `encode` raises EncodeError, see `refuse_unavailable`. A null in their place would be a wrong value.

    Constructors have no side effects and connect to nothing. The registration declares envelopes and outputs, and the
    engine refuses any other before a changefeed starts.

    Raises, from `encode` and from `write` of a body: EncodeError, with the names of table, column and key, for a value
    without a representation. The engine then passes the rows in smaller parts until the bad rows are alone. Raises,
    everywhere: RetryableError when a service that the encoder needs is unreachable, TerminalError when it refuses.
    """

    file_extension: str = ".ndjson"
    """The end of file names, with its dot."""

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:  # noqa: B027 (has a default)
        """Return when rows of *tables*, each with its topic, can be encoded.

        Driver, before a run and for `cdc check`. Changes nothing. By default, every table can be encoded.

        Raises: ConfigError for a type without a representation, options that cannot be combined, or a service that is
        unreachable or refuses.
        """

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return what tells apart what consumers need besides messages of *tables*, such as ids of registered schemas.

        Driver; otherwise as `Destination.identities`.
        """
        return {}

    @abstractmethod
    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Return one message for each row, in order. Task.

        Deterministic: the same rows give the same bytes, apart from what `clock` says.
        """

    @abstractmethod
    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the resolved mark of *timestamp* for consumers of *topic*. Coordinator.

        An encoder with `scans_only` raises TerminalError for a mark, and EncodeError for a deleted row.
        """

    def keyed(self, rows: RowBatch) -> RowBatch:
        """Return *rows* with the key that their messages have; `key_in_value` is always the key of *rows* itself.

        Its values may be null. Raises: EncodeError, TerminalError.
        """
        return rows if self.context.key_column is None else keyed_rows(rows, self.context.key_column)

    def keyed_schema(self, schema: TableSchema) -> TableSchema:
        """Return the schema of what `keyed` returns. Raises: ConfigError when the table lacks the column."""
        return schema if self.context.key_column is None else keyed_schema(schema, self.context.key_column)

    def open_body(self, topic: str) -> FileBody:
        """Return an empty file body for rows of *topic*. Task, for a sink that writes files.

        By default, a file has one line for each message value. Override it for a container such as Avro or Parquet.
        """
        return NewlineBody(lambda rows: self.encode(rows, topic=topic).value)
