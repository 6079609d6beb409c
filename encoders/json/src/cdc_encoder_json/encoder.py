"""The JSON encoder: whole batches become messages, byte for byte as CockroachDB writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from cdc_column_texts import joined, joined_bytes

from cdc_core import (
    METADATA_MEMBER,
    ConfigError,
    ContractError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    OptionError,
    PluginLoadError,
    RowBatch,
    RowPlace,
    TableSchema,
    Timestamp,
    joined_values,
)
from cdc_encoder_json.events import EventTexts
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.value_texts import ValueTexts

if TYPE_CHECKING:
    from cdc_encoder_json.registered_schemas import RegisteredSchemas

_OWNER = "encoder 'json'"


class JsonEncoder(Encoder):
    """JSON messages in any envelope. A key is the array of the primary key's values, in `enriched` an object.

    The members of an object are in alphabetical order, separated by `": "` and `", "`. A message contains no line end.
    With a schema registry, messages have its wire format, except events, which have the URL of their data's schema.

    Raises: OptionError for options that cannot be combined.
    """

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        context.envelope.check(_OWNER)
        self._texts = ValueTexts(context, null_as_object=options.encode_json_value_null_as_object)
        self._events = None if context.events is None else EventTexts(context.events)
        if self._events is not None and context.output != "messages":
            raise OptionError(
                f"{_OWNER}: envelope 'cloudevents' is only for messages, because CloudEvents defines no format for"
                " files of lines; use envelope 'wrapped'"
            )
        self._schemas = None
        if options.confluent_schema_registry is not None:
            if context.envelope.has_schema:
                raise OptionError(
                    f"{_OWNER}: enriched_properties = 'schema' puts the schema in each message, but option "
                    "'confluent_schema_registry' puts it in a registry; remove one of them"
                )
            self._schemas = _schemas_in(options.confluent_schema_registry, self)

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        envelope = self.context.envelope
        if envelope.row is RowPlace.MESSAGE:
            for schema, _ in tables:
                if any(column.name == METADATA_MEMBER for column in schema.columns):
                    raise ConfigError(
                        f"table {schema.name} has a column named {METADATA_MEMBER}, which envelope '{envelope.name}' "
                        "reserves for metadata; use envelope 'wrapped'"
                    )
        for schema, _ in tables:
            self.keyed_schema(schema)
        if self._schemas is not None:
            self._schemas.check(tables)

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:
        """Return the ids that the registry has for the schemas of *tables*, if there is one."""
        return {} if self._schemas is None else self._schemas.identities(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = joined(self._texts.key(rows), len(rows))
        pieces = self._texts.value(rows, topic, [keys])
        keyed = self.keyed(rows)
        own = keys if keyed is rows else joined(self._texts.key(keyed), len(rows))
        attributes = None
        if self._events is not None:
            url = None if self._schemas is None else self._schemas.url(rows.schema, topic)
            if self._events.binary:
                attributes = self._events.attributes(rows, key=keys, message_key=own, schema=url)
            else:
                pieces = self._events.structured(rows, pieces, key=keys, message_key=own, schema=url)
        value = joined_bytes(pieces, len(rows))
        key = joined_bytes(self._texts.message_key(keyed.schema, [own]), len(rows))
        if self._schemas is not None and self._events is None:
            key, value = self._schemas.framed(rows.schema, topic, key=key, value=value)
        return MessageBatch(topic=topic, key=key, value=value, updated=rows.column("updated"), attributes=attributes)

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        text = self._texts.resolved(timestamp)
        if self._events is not None and not self._events.binary:
            text = self._events.resolved(timestamp, text)
        payload = text.encode()
        return (
            payload
            if self._schemas is None or self._events is not None
            else self._schemas.framed_resolved(topic, payload)
        )

    def open_body(self, topic: str) -> FileBody:
        return _LinesBody(self, topic)

    def lines(self, rows: RowBatch, *, topic: str) -> pa.Buffer:
        """Return the values that `encode` returns, each followed by a newline."""
        envelope = self.context.envelope
        keys = self._texts.key(rows) if envelope.key_in_value else []
        lines = joined_bytes([*self._texts.value(rows, topic, keys), "\n"], len(rows))
        if lines.null_count:
            raise ContractError(f"envelope '{envelope.name}' has tombstones, which a file of lines cannot hold")
        return joined_values(lines)


class _LinesBody(FileBody):
    """Lines. The newline is joined with the pieces of a value, which saves the copy that `NewlineBody` makes."""

    def __init__(self, encoder: JsonEncoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._encoder.lines(rows, topic=self._topic)


def _schemas_in(registry: str, encoder: Encoder) -> RegisteredSchemas:
    if encoder.context.output != "messages":
        raise OptionError(
            f"{_OWNER}: option 'confluent_schema_registry' applies to messages only, because files of lines cannot "
            "hold schema ids; remove it"
        )
    try:
        # The package is an extra.
        from cdc_schema_registry import Registry

        from cdc_encoder_json.registered_schemas import RegisteredSchemas
    except ImportError as error:
        raise PluginLoadError(
            f"{_OWNER} cannot use option 'confluent_schema_registry' ({error}); "
            "pip install 'cdc-encoder-json[registry]'"
        ) from error
    client = Registry.of(registry, owner=_OWNER, read_only=encoder.context.preview)
    return RegisteredSchemas(
        client,
        encoder.context.envelope,
        keyed=None if encoder.context.events is not None else encoder.keyed_schema,
    )
