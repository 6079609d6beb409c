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

__all__ = ["ParquetEncoder"]

_OWNER = "encoder 'parquet'"


class ParquetEncoder(Encoder):
    """Files with a column for each column of the table and some for the change; the same in every envelope.

    A deleted row has its key, nulls in the other columns, and the event type `d`. Resolved marks are JSON: a tool that
    takes a directory for one table meets a file that is no Parquet, and not rows of nulls.
    """

    file_extension = ".parquet"
    compresses = True

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self._options: ParquetOptions = context.options

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.envelope.topic_in_value:
            raise OptionError(f"{_OWNER}: a file has no place for 'topic_in_value'; its name has the topic")
        for schema, _ in tables:
            for column in schema.columns:
                if column.name in METADATA:
                    raise ConfigError(
                        f"table {schema.name} has a column {column.name}, which Parquet files keep for metadata; rename"
                        " it, or choose another format"
                    )

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:  # noqa: ARG002 (one contract)
        """Raise ContractError: the registration offers files only."""
        raise ContractError(f"{_OWNER} writes files, and was asked for messages of topic '{topic}'")

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002 (one file speaks for all)
        return f'{{"resolved":"{timestamp}"}}'.encode()

    def open_body(self, topic: str) -> FileBody:  # noqa: ARG002 (the file's name has it)
        return ParquetBody(envelope=self.context.envelope, options=self._options, compression=self.context.compression)
