"""Encoders turn rows into bytes, whole batches at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from cdc_core.encoder_context import EncoderContext
from cdc_core.file_body import FileBody, NewlineBody
from cdc_core.message_keys import keyed_rows, keyed_schema
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp


class Encoder(ABC):
    """Turns rows into messages or files. Each process has its own instance, used by one thread at a time.

    The driver checks it, tasks encode rows with it, and the coordinator encodes resolved marks. Only `encode` and
    `encode_resolved` must be written. The registration declares envelopes and outputs; any other is refused before a
    changefeed starts.

    Constructors connect to nothing, and raise OptionError for options that cannot be combined. There is no `close`:
    share what you open between encoders, or close it yourself.

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

        Driver, before a run and for `cdc check`. Changes nothing, and prepares nothing: tasks do not call it. By
        default, every table can be encoded.

        Raises: ConfigError, with the names of table and column, for a type without a representation; for options that
        cannot be combined; for a service that is unreachable or refuses.
        """

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return what tells apart what consumers need besides messages of *tables*, such as ids of registered schemas.

        Driver; otherwise as `Destination.identities`.
        """
        return {}

    @abstractmethod
    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Return one message for each row, in order. Task.

        The same rows give the same bytes, in every process and at any time, apart from what `clock` says: consumers
        recognize repeated rows by them. Equal keys have equal bytes, and different keys different ones: `("a,b", "c")`
        is not `("a", "b,c")`. Brokers choose the partition by the key, so a change of other columns must not change it.

        `rows.schema` is that of this batch; the next may have another version or be of another table. A message
        contains no secrets. Sinks keep messages of many batches: do not reuse their buffers.
        """

    @abstractmethod
    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the resolved mark of *timestamp* for consumers of *topic*. Coordinator.

        It differs from every row, also of a table with a column `resolved`. An encoder with `scans_only` raises
        TerminalError for a mark, and EncodeError for a deleted row.
        """

    def keyed(self, rows: RowBatch) -> RowBatch:
        """Return *rows* with the key that their messages have: with the option `key_column`, that column.

        Its values may be null. An encoder that `rekeys` takes the key of messages from there, and all else, also
        `key_in_value`, from *rows*. Do not override it. Raises: EncodeError, TerminalError.
        """
        return rows if self.context.key_column is None else keyed_rows(rows, self.context.key_column)

    def keyed_schema(self, schema: TableSchema) -> TableSchema:
        """Return the schema of what `keyed` returns. Call it in `check` for each table.

        Raises: ConfigError when the table lacks the column.
        """
        return schema if self.context.key_column is None else keyed_schema(schema, self.context.key_column)

    def open_body(self, topic: str) -> FileBody:
        """Return an empty file body for rows of *topic*. Task, for a sink that writes files.

        By default, a file has one line for each message value, which then must not contain line ends. Override it for a
        container such as Avro or Parquet.
        """
        return NewlineBody(lambda rows: self.encode(rows, topic=topic).value)
