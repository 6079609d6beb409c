"""The Avro encoder: whole batches become messages in the Confluent wire format, or object container files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import Ints, NoRepresentationError, encode_error
from cdc_column_texts.binary import Piece, joined
from cdc_schema_registry import Registry, frame_one
from fastavro.schema import SchemaParseException

from cdc_core import (
    UNAVAILABLE_MEMBER,
    Column,
    ConfigError,
    DeleteForm,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    OptionError,
    RowBatch,
    TableSchema,
    Timestamp,
    unavailable_sets,
)
from cdc_encoder_avro.container import AvroBody
from cdc_encoder_avro.enriched import op_pieces, source_pieces, time_bytes
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import (
    DEFINITION,
    envelope_fields,
    envelope_schema,
    key_schema,
    resolved_schema,
    row_field,
    schema_text,
)
from cdc_encoder_avro.strings import string_bytes, timestamp_pieces
from cdc_encoder_avro.unavailable import by_row, unavailable_pieces
from cdc_encoder_avro.values import value_pieces

_OWNER = "encoder 'avro'"
_NULL, _PRESENT = b"\x00", b"\x02"


@dataclass(slots=True)
class _Headers:
    """The bytes before every key and every value of one schema version in one topic."""

    schema: TableSchema
    key: bytes
    value: bytes
    incomplete: bytes | None = None
    """Those before a value that lacks columns; None before the first one, whose schema is registered then."""


class AvroEncoder(Encoder):
    """Messages in the Confluent wire format, or Avro object container files.

    A schema is registered before the first row that needs it, and its id is cached. Files contain their schema and need
    no registry.

    Raises: OptionError for an option that has no place in the envelope.
    """

    file_extension = ".avro"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        context.envelope.check(_OWNER)
        if context.envelope.has_schema:
            raise OptionError(
                f"{_OWNER}: enriched_properties = 'schema' has no effect, because Avro always has a schema; remove it"
            )
        self._options: AvroOptions = context.options
        self._headers: dict[tuple[str, str], _Headers] = {}

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Return when the schemas of *tables* are valid and the registry would accept them. Registers nothing."""
        if self._files and not self.context.envelope.key_in_value:
            raise OptionError(f"{_OWNER}: files require option 'key_in_value', because a deleted row has only its key")
        registry = None if self._files else self._registry
        subjects = [(schema, self._subjects(schema, topic)) for schema, topic in tables]
        for schema, texts in subjects:
            for text in texts.values():
                _check_schema(schema, text)
        if registry is not None:
            registry.check_all([pair for _, texts in subjects for pair in texts.items()], "AVRO")

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:
        """Return the ids that the registry has for the schemas of *tables*."""
        if self._files:
            return {}
        subjects: dict[str, str] = {}
        for schema, topic in tables:
            subjects |= self._subjects(schema, topic)
        return self._registry.identities(subjects, "AVRO")

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keyed = self.keyed(rows)
        self._registry.verify()
        headers = self._headers_of(rows.schema, topic)
        key = self._key(rows)
        keys = joined([headers.key, *(key if keyed is rows else self._key(keyed))], len(rows))
        values = joined([*self._value_headers(rows, topic, headers), *self._value(rows, topic, key)], len(rows))
        after = rows.column("after")
        if self.context.envelope.delete is DeleteForm.TOMBSTONE and after.null_count:
            values = pc.if_else(after.is_valid(), values, pa.scalar(None, values.type))
        return MessageBatch(topic=topic, key=keys, value=values, updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        text = schema_text(resolved_schema(topic, self._options))
        payload = string_bytes(str(timestamp), branch=1)
        if self._files:
            return AvroBody.whole(text, payload, codec=self._options.avro_codec)
        self._registry.verify()
        return frame_one(payload, self._registered(self._subject(topic, "value"), text))

    def open_body(self, topic: str) -> FileBody:
        return AvroBody(
            lambda schema: self.file_schema(schema, topic),
            lambda rows: joined(self._value(rows, topic, None), len(rows)),
            topic=topic,
            codec=self._options.avro_codec,
        )

    def file_schema(self, schema: TableSchema, topic: str) -> str:
        """Return the Avro schema of a file of rows of *schema*."""
        return schema_text(self._envelope_schema(schema, topic, resolved=False, unavailable=True))

    @cached_property
    def _registry(self) -> Registry:
        address = self._options.confluent_schema_registry
        if address is None:
            raise OptionError(f"{_OWNER}: messages require option 'confluent_schema_registry', the URL of a registry")
        return Registry.of(address, owner=_OWNER, read_only=self.context.preview)

    @property
    def _files(self) -> bool:
        return self.context.output == "files"

    def _registered(self, subject: str, schema: str, *, aside: str | None = None) -> int:
        """See `Registry.register`."""
        return self._registry.register(subject, schema, "AVRO", aside=aside)

    def _subject(self, topic: str, part: str) -> str:
        return f"{self._options.avro_schema_prefix}{topic}-{part}"

    def _envelope_schema(
        self, schema: TableSchema, topic: str, *, resolved: bool, unavailable: bool
    ) -> dict[str, object]:
        envelope, options = self.context.envelope, self._options
        return envelope_schema(
            schema, topic, envelope=envelope, options=options, resolved=resolved, unavailable=unavailable
        )

    def _subjects(self, schema: TableSchema, topic: str) -> dict[str, str]:
        """Return the schemas of keys and values, by subject."""
        value = self._envelope_schema(schema, topic, resolved=not self._files, unavailable=self._files)
        key = key_schema(self.keyed_schema(schema), self._options)
        return {
            self._subject(topic, "key"): schema_text(key),
            self._subject(topic, "value"): schema_text(value),
        }

    def _value_headers(self, rows: RowBatch, topic: str, headers: _Headers) -> list[Piece]:
        """Return what comes before each value. Rows that lack values have a schema of their own."""
        if not self._lacks_values(rows):
            return [headers.value]
        if headers.incomplete is None:
            text = schema_text(self._envelope_schema(rows.schema, topic, resolved=True, unavailable=True))
            headers.incomplete = frame_one(b"", self._registered(self._subject(topic, "value"), text))
        return by_row(rows, [headers.incomplete if names else headers.value for names, _ in unavailable_sets(rows)])

    def _headers_of(self, schema: TableSchema, topic: str) -> _Headers:
        place = (topic, schema.name.full)
        headers = self._headers.get(place)
        if headers is None or (headers.schema is not schema and headers.schema != schema):
            key, value = self._subjects(schema, topic).items()
            key_id = self._registered(*key, aside=DEFINITION)
            headers = _Headers(schema, frame_one(b"", key_id), frame_one(b"", self._registered(*value)))
            self._headers[place] = headers
        return headers

    def _key(self, rows: RowBatch) -> list[Piece]:
        key = rows.column("key")
        return self._fields(rows, rows.schema.key_columns, key, None)

    def _value(self, rows: RowBatch, topic: str, key: list[Piece] | None) -> list[Piece]:
        """Return the pieces of the envelope record. In a message, only rows that lack values say so."""
        pieces: list[Piece] = []
        for name in envelope_fields(self.context.envelope, resolved=not self._files, unavailable=self._files):
            pieces += self._field(rows, name, topic, key)
        if self._lacks_values(rows) and not self._files:
            pieces += unavailable_pieces(rows, complete=b"")
        return pieces

    def _lacks_values(self, rows: RowBatch) -> bool:
        return rows.has_unavailable and row_field(self.context.envelope) is not None

    def _field(self, rows: RowBatch, name: str, topic: str, key: list[Piece] | None) -> list[Piece]:
        """Return the union of null and a field of the envelope record."""
        envelope = self.context.envelope
        if name == "resolved":
            return [_NULL]
        if name == "topic":
            return [string_bytes(topic, branch=1)]
        if name == "ts_ns":
            return [time_bytes(self.context.clock())]
        if name == "op":
            return op_pieces(rows)
        if name == "source":
            return source_pieces(rows, envelope, self.context.source)
        if name == UNAVAILABLE_MEMBER:
            return unavailable_pieces(rows, complete=_NULL) if self._lacks_values(rows) else [_NULL]
        if name == "key":
            return [_PRESENT, *(self._key(rows) if key is None else key)]
        if name == row_field(envelope):
            return self._records(rows, rows.column("after"))
        column = envelope.column(rows, name)
        if name in envelope.images:
            return [_NULL] if column is None else self._records(rows, column)
        return timestamp_pieces(column)

    def _records(self, rows: RowBatch, structs: pa.StructArray) -> list[Piece]:
        """Return the unions of null and the records of *structs*, a column `after` or `before` of *rows*."""
        columns = rows.schema.columns
        if structs.null_count == 0:
            return [_PRESENT, *self._fields(rows, columns, structs, None)]
        present = np.asarray(structs.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        places = np.flatnonzero(present)
        if len(places) == 0:
            return [_NULL]
        records = joined(
            [_PRESENT, *self._fields(rows, columns, structs.filter(pa.array(present)), places)], len(places)
        )
        records = pa.concat_arrays([records, pa.array([_NULL], pa.large_binary())])
        return [records.take(pa.array(np.where(present, np.cumsum(present) - 1, len(places))))]

    def _fields(
        self, rows: RowBatch, columns: Sequence[Column], structs: pa.StructArray, places: Ints | None
    ) -> list[Piece]:
        """Return the fields of records. *places* are the rows that *structs* has, None for all."""
        pieces: list[Piece] = []
        for index, column in enumerate(columns):
            try:
                pieces += value_pieces(structs.field(index), column.type, self._options)
            except NoRepresentationError as error:
                raise encode_error(error, rows, column, format_="Avro", places=places) from error
        return pieces


def _check_schema(schema: TableSchema, text: str) -> None:
    try:
        fastavro.parse_schema(json.loads(text))
    except SchemaParseException as error:
        raise ConfigError(
            f"cannot encode table {schema.name} as Avro: {error}; rename the table, column or topic of that name"
        ) from error
