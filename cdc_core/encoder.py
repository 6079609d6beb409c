"""Encoders turn rows into bytes, whole batches at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from cdc_core.encoder_context import EncoderContext
from cdc_core.errors import ContractError
from cdc_core.file_body import FileBody, NewlineBody
from cdc_core.message_keys import keyed_rows, keyed_schema
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp


class Encoder(ABC):
    """Turns rows into messages or files. Each process has its own instance, used by one thread at a time.

    The driver checks it, tasks encode rows with it, and the coordinator encodes resolved marks. You must write only
    `encode` and `encode_resolved`. The registration declares envelopes and outputs; any other is refused before a
    changefeed starts.

    Constructors connect to nothing, and raise OptionError for options that cannot be combined. There is no `close`:
    share what you open between encoders, or close it yourself.

    Raises, from `encode` and from `write` of a body: EncodeError, with the names of table, column and key, for a value
    without a representation. The engine then passes the rows in smaller parts until the bad rows are alone. Raises,
    everywhere: RetryableError when a service that the encoder needs is unreachable, TerminalError when it refuses.
    """

    file_extension: str = ".ndjson"
    """The end of file names, including the dot."""

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:  # noqa: B027 (has a default)
        """Check that rows of *tables*, each with its topic, can be encoded.

        Called in the driver, before a run and for `cdc check`. Changes nothing, and prepares nothing, because tasks do
        not call it. By default, every table can be encoded.

        Raises: ConfigError, with the names of table and column, for a type without a representation; for options that
        cannot be combined; for a service that is unreachable or refuses.
        """

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return identities of what consumers need besides the messages of *tables*, such as ids of registered schemas.

        Called in the driver. See `Destination.identities`.
        """
        return {}

    @abstractmethod
    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        """Return one message for each row, in order. Called in tasks.

        The same rows give the same bytes, in every process and at any time, except for the time that `clock` returns:
        consumers recognize repeated rows by their bytes. Equal keys have equal bytes, and different keys different
        ones: `("a,b", "c")` is not `("a", "b,c")`. Brokers choose the partition by the key, so the key must not change
        when other columns do.

        `rows.schema` is the schema of this batch; the next batch may have another version or belong to another table. A
        message contains no secrets. Sinks keep the messages of many batches, so do not reuse their buffers.
        """

    @abstractmethod
    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        """Return the resolved mark of *timestamp* for consumers of *topic*. Called in the coordinator.

        A mark differs from every row, even of a table with a column `resolved`. An encoder with `scans_only` raises
        TerminalError for a mark, and EncodeError for a deleted row.
        """

    def keyed(self, rows: RowBatch) -> RowBatch:
        """Return *rows* with the key of their messages: with the option `key_column`, the value of that column.

        These values may be null. An encoder that `rekeys` takes the key of messages from the result, and everything
        else, including `key_in_value`, from *rows*. Do not override this method. Raises: EncodeError, TerminalError.
        """
        return rows if self.context.key_column is None else keyed_rows(rows, self.context.key_column)

    def keyed_schema(self, schema: TableSchema) -> TableSchema:
        """Return the schema of the result of `keyed`. Call this in `check` for each table.

        Raises: ConfigError if the table lacks the column.
        """
        return schema if self.context.key_column is None else keyed_schema(schema, self.context.key_column)

    def open_body(self, topic: str) -> FileBody:
        """Return an empty file body for rows of *topic*. Called in tasks, for a sink that writes files.

        By default, a file has one line for each message value, which must not contain line breaks. Override this method
        for a container format such as Avro or Parquet.
        """
        return NewlineBody(lambda rows: encoded(self, rows, topic=topic).value)


def encoded(encoder: Encoder, rows: RowBatch, *, topic: str) -> MessageBatch:
    """Return the messages of *rows*. No sink would notice that *encoder* has left out rows, so this does.

    Raises: ContractError, besides what `encode` raises.
    """
    batch: object = encoder.encode(rows, topic=topic)
    if not isinstance(batch, MessageBatch):
        fault = type(batch).__name__
    elif not len(batch.key) == len(batch.value) == len(rows):
        fault = f"{len(batch.key)} keys and {len(batch.value)} values for {len(rows)} rows"
    else:
        return batch
    raise ContractError(f"encoder {type(encoder).__name__} broke its contract: encode() returned {fault}")
