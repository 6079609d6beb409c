"""The Parquet encoder."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core import (
    ConfigError,
    ContractError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    OptionError,
    RowBatch,
    TableSchema,
    Timestamp,
)
from cdc_encoder_parquet.body import ParquetBody
from cdc_encoder_parquet.columns import METADATA
from cdc_encoder_parquet.options import ParquetOptions

_OWNER = "encoder 'parquet'"


class ParquetEncoder(Encoder):
    """Files with the columns of the table and some columns of metadata. Every envelope gives the same files.

    A deleted row has its key, nulls in the other columns, and the event type `d`. Resolved marks are JSON: a tool that
    reads a whole directory as one table fails at such a file, instead of reading a row of nulls.

    Raises: OptionError for an option that has no place in the envelope.
    """

    file_extension = ".parquet"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        context.envelope.check(_OWNER)
        self._options: ParquetOptions = context.options

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.envelope.topic_in_value:
            raise OptionError(f"{_OWNER}: files cannot hold 'topic_in_value'; remove it")
        for schema, _ in tables:
            for column in schema.columns:
                if column.name in METADATA:
                    raise ConfigError(
                        f"table {schema.name} has a column named {column.name}, which Parquet files reserve for "
                        "metadata; rename the column, or choose another format"
                    )

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:  # noqa: ARG002
        """Raise ContractError: the registration offers only files."""
        raise ContractError(f"{_OWNER} writes only files, not messages of topic '{topic}'")

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002
        return f'{{"resolved":"{timestamp}"}}'.encode()

    def open_body(self, topic: str) -> FileBody:  # noqa: ARG002
        return ParquetBody(envelope=self.context.envelope, options=self._options, compression=self.context.compression)
