"""The JSON encoder: whole batches become messages, byte for byte as CockroachDB writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import polars as pl
import pyarrow as pa
from cdc_column_texts.pieces import joined

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
from cdc_core.encoder import joined_values
from cdc_core.errors import PluginLoadError
from cdc_encoder_json.envelopes import envelope_of
from cdc_encoder_json.objects import METADATA
from cdc_encoder_json.options import JsonOptions

if TYPE_CHECKING:
    from cdc_encoder_json.registered import RegisteredSchemas

__all__ = ["JsonEncoder"]


class JsonEncoder(Encoder):
    """Messages of JSON in one of the envelopes; the message key is the array of the primary key's values.

    Object keys stand in alphabetical order, `": "` and `", "` separate. A message never contains a line end. With a
    schema registry, messages are in its wire format.

    Raises: OptionError for options that do not go together.
    """

    file_extension = ".ndjson"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        self._envelope = envelope_of(context.envelope, null_as_object=options.encode_json_value_null_as_object)
        self._schemas = None
        if options.confluent_schema_registry is not None:
            self._schemas = _schemas_in(options.confluent_schema_registry, context)

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.envelope.envelope in ("bare", "row"):
            for schema, _ in tables:
                if any(column.name == METADATA for column in schema.columns):
                    raise ConfigError(
                        f"table {schema.name} has a column {METADATA}, which envelope "
                        f"'{self.context.envelope.envelope}' keeps for metadata; use envelope 'wrapped'"
                    )
        if self._schemas is not None:
            self._schemas.check(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = joined(self._envelope.texts.key(rows), len(rows))
        values = joined(self._envelope.value(rows, topic, [keys]), len(rows))
        key, value = _binary(keys), _binary(values)
        if self._schemas is not None:
            key, value = self._schemas.framed(rows.schema, topic, key=key, value=value)
        return MessageBatch(topic=topic, key=key, value=value, updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        payload = self._envelope.resolved(timestamp).encode()
        return payload if self._schemas is None else self._schemas.framed_resolved(topic, payload)

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


def _schemas_in(registry: str, context: EncoderContext) -> RegisteredSchemas:
    if context.output != "messages":
        raise OptionError(
            "encoder 'json': option 'confluent_schema_registry' is for messages; files of lines have no place for the "
            "ids of schemas, so leave it out"
        )
    try:
        # the package is an extra
        from cdc_schema_registry import Registry

        from cdc_encoder_json.registered import RegisteredSchemas
    except ImportError as error:
        raise PluginLoadError(
            f"encoder 'json' cannot use option 'confluent_schema_registry' ({error}); "
            "pip install 'cdc-encoder-json[registry]'"
        ) from error
    return RegisteredSchemas(Registry.of(registry, owner="encoder 'json'"), context.envelope)


def _binary(texts: pl.Series) -> pa.Array:
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    return cast(pa.Array, array.cast(pa.large_binary()))
