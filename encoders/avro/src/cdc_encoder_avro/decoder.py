"""Reads what the Avro encoder writes, for tests, audits and readers of files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from cdc_column_texts import key_in_row
from cdc_schema_registry import Registry, unframe

from cdc_core import (
    UNAVAILABLE_MEMBER,
    DecodedRow,
    Decoder,
    EncoderContext,
    Envelope,
    OptionError,
    TableSchema,
    Timestamp,
    op_of,
    timestamps_of_source,
)
from cdc_encoder_avro.container import read_container
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.record_reading import RecordReader
from cdc_encoder_avro.schemas import row_field

_OWNER = "decoder of 'avro'"


class AvroDecoder(Decoder):
    """Reads messages, with schemas from the encoder's registry, and object container files.

    Values without a column in the table are Avro's plain values: numbers, texts, lists.
    """

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self._readers: dict[int, RecordReader] = {}

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        keys = None
        if key is not None and self.context.key_column is None:
            reader, record = self._record(key)
            keys = reader.key(schema, record)
        if value is None:
            return DecodedRow(key=keys, after=None)
        return _decoded(schema, keys, self.context.envelope, *self._record(value))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        if not body:
            return []
        reader, records = read_container(body)
        return [_decoded(schema, None, self.context.envelope, reader, record) for record in records]

    def resolved(self, value: bytes | None) -> Timestamp | None:
        if not value:
            return None
        if self.context.output == "files":
            records = read_container(value)[1]
            record = records[0] if len(records) == 1 else {}
        else:
            record = self._record(value)[1]
        text = record.get("resolved")
        return None if text is None else Timestamp.parse(text)

    @cached_property
    def _registry(self) -> Registry:
        options: AvroOptions = self.context.options
        if options.confluent_schema_registry is None:
            raise OptionError(f"{_OWNER}: messages require option 'confluent_schema_registry', the URL of a registry")
        return Registry.of(options.confluent_schema_registry, owner=_OWNER)

    def _record(self, payload: bytes) -> tuple[RecordReader, dict[str, Any]]:
        schema_id, data = unframe(payload)
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = RecordReader(self._registry.schema(schema_id))
        stream = io.BytesIO(data)
        record = reader.read(stream)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the record of schema {schema_id}")
        return reader, record


def _decoded(
    schema: TableSchema, key: tuple[Any, ...] | None, envelope: Envelope, reader: RecordReader, record: dict[str, Any]
) -> DecodedRow:
    row = row_field(envelope)
    metadata = record | timestamps_of_source(record.get("source") or {})
    op = record.get("op")
    after = None if row is None else reader.row(schema, record, row)
    before = reader.row(schema, record, "before")
    lacking = frozenset(record.get(UNAVAILABLE_MEMBER) or ())
    unavailable = () if row is None else reader.columns(row, lacking)
    if after is not None and unavailable:
        after = {name: value for name, value in after.items() if name not in unavailable}
    key_record = reader.row(schema, record, "key")
    key_in_value = None if key_record is None else tuple(key_record.values())
    return DecodedRow(
        key=key or key_in_value or key_in_row(schema, after or before),
        after=after,
        before=before,
        updated=_timestamp(metadata, "updated"),
        mvcc=_timestamp(metadata, "mvcc_timestamp"),
        key_in_value=key_in_value,
        topic_in_value=record.get("topic"),
        unavailable=unavailable,
        op=None if op is None else op_of(op),
    )


def _timestamp(record: dict[str, Any], name: str) -> Timestamp | None:
    text = record.get(name)
    return None if text is None else Timestamp.parse(text)
