"""The JSON encoder: whole batches become messages, byte for byte as CockroachDB writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import polars as pl
import pyarrow as pa

from cdc_core import (
    ConfigError,
    ContractError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    RowBatch,
    TableSchema,
    Timestamp,
)
from cdc_core.encoder import joined_values
from cdc_encoder_json.envelopes import envelope_of
from cdc_encoder_json.objects import METADATA
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.pieces import joined

__all__ = ["JsonEncoder"]


class JsonEncoder(Encoder):
    """Messages of JSON in one of the envelopes; the message key is the array of the primary key's values.

    Object keys stand in alphabetical order, `": "` and `", "` separate. A message never contains a line end.

    Raises: OptionError for options that do not go together.
    """

    file_extension = ".ndjson"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        self._envelope = envelope_of(context.envelope, null_as_object=options.encode_json_value_null_as_object)

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.envelope.envelope in ("bare", "row"):
            for schema, _ in tables:
                if any(column.name == METADATA for column in schema.columns):
                    raise ConfigError(
                        f"table {schema.name} has a column {METADATA}, which envelope "
                        f"'{self.context.envelope.envelope}' keeps for metadata; use envelope 'wrapped'"
                    )

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = joined(self._envelope.texts.key(rows), len(rows))
        values = joined(self._envelope.value(rows, topic, [keys]), len(rows))
        return MessageBatch(topic=topic, key=_binary(keys), value=_binary(values), updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002 (the same for every topic)
        return self._envelope.resolved(timestamp).encode()

    def open_body(self, topic: str) -> FileBody:
        return _LinesBody(self, topic)

    def lines(self, rows: RowBatch, *, topic: str) -> pa.Buffer:
        """Return the messages' values one after the other, each followed by a newline, as `encode` would give them."""
        keys = self._envelope.texts.key(rows) if self.context.envelope.key_in_value else []
        lines = joined([*self._envelope.value(rows, topic, keys), "\n"], len(rows))
        if lines.null_count():
            raise ContractError(
                f"envelope '{self.context.envelope.envelope}' has tombstones, which no line of a file can stand for"
            )
        return joined_values(_binary(lines))


class _LinesBody(FileBody):
    """Messages' values, each followed by a newline that is written along with them."""

    def __init__(self, encoder: JsonEncoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._encoder.lines(rows, topic=self._topic)

    def finish(self) -> bytes:
        return b""


def _binary(texts: pl.Series) -> pa.Array:
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    return cast(pa.Array, array.cast(pa.large_binary()))
