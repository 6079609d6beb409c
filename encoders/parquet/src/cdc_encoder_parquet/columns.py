"""The columns of a file: those of the table, then those of metadata."""

from __future__ import annotations

import json

import pyarrow as pa
from cdc_column_texts import NoRepresentationError, columns_with_keys, encode_error, hlc_texts

from cdc_core import Envelope, Op, RowBatch, TableSchema
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.types import parquet_type
from cdc_encoder_parquet.values import column_values

__all__ = [
    "BEFORE",
    "EVENTS",
    "EVENT_TYPE",
    "METADATA",
    "MVCC",
    "SCHEMA_KEY",
    "UNAVAILABLE",
    "UPDATED",
    "file_columns",
    "file_metadata",
    "file_schema",
]

EVENT_TYPE, UPDATED, MVCC, BEFORE = "__crdb__event_type", "__crdb__updated", "__crdb__mvcc_timestamp", "__crdb__before"
UNAVAILABLE = "__crdb__unavailable"
METADATA = (EVENT_TYPE, UPDATED, MVCC, BEFORE, UNAVAILABLE)
"""Every column of metadata that a file may have, in order."""
EVENTS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.SCAN: "c"}
SCHEMA_KEY = b"cdc.schema"
"""Key of the file metadata that holds the table's schema as JSON: names, source types, primary key, version."""
_NAMES = pa.list_(pa.field("element", pa.string()))
_EVENTS_BY_NUMBER = pa.array([None, *(EVENTS[op] for op in sorted(EVENTS))])


def file_schema(schema: TableSchema, envelope: Envelope, options: ParquetOptions) -> pa.Schema:
    """Return the columns of a file of rows of *schema*."""
    columns = [pa.field(column.name, parquet_type(column.type, options)) for column in schema.columns]
    fields = [*columns, pa.field(EVENT_TYPE, pa.string())]
    if envelope.updated:
        fields.append(pa.field(UPDATED, pa.string()))
    if envelope.mvcc_timestamp:
        fields.append(pa.field(MVCC, pa.string()))
    if envelope.diff:
        fields.append(pa.field(BEFORE, pa.struct(columns)))
    fields.append(pa.field(UNAVAILABLE, _NAMES))
    return pa.schema(fields)


def file_metadata(schema: TableSchema) -> dict[bytes, bytes]:
    """Return the metadata of a file, the only place that names the key columns."""
    return {SCHEMA_KEY: json.dumps(schema.to_json(), separators=(",", ":")).encode()}


def file_columns(rows: RowBatch, schema: pa.Schema, envelope: Envelope, options: ParquetOptions) -> pa.RecordBatch:
    """Return *rows* in the columns of *schema*, their `file_schema`. Raises: EncodeError."""
    arrays = _images(rows, columns_with_keys(rows), options)
    arrays.append(_EVENTS_BY_NUMBER.take(rows.column("op")))
    if UPDATED in schema.names:
        arrays.append(hlc_texts(envelope.column(rows, "updated")))
    if MVCC in schema.names:
        arrays.append(hlc_texts(envelope.column(rows, "mvcc_timestamp")))
    if BEFORE in schema.names:
        arrays.append(_before(rows, envelope, schema.field(BEFORE).type, options))
    arrays.append(rows.column("unavailable").cast(_NAMES) if rows.has_unavailable else pa.nulls(len(rows), _NAMES))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _images(rows: RowBatch, arrays: list[pa.Array], options: ParquetOptions) -> list[pa.Array]:
    """Return *arrays*, the table's columns in *rows*, as columns of a file."""
    written = []
    for column, array in zip(rows.schema.columns, arrays, strict=True):
        try:
            written.append(column_values(array, column.type, options))
        except NoRepresentationError as error:
            raise encode_error(error, rows, column, format_="Parquet") from error
    return written


def _before(rows: RowBatch, envelope: Envelope, type_: pa.StructType, options: ParquetOptions) -> pa.Array:
    before = envelope.column(rows, "before")
    if before is None:
        return pa.nulls(len(rows), type_)
    images = _images(rows, before.flatten(), options)
    return pa.StructArray.from_arrays(images, fields=list(type_), mask=before.is_null())
