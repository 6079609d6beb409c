"""The columns of a file: those of the table, then what is known of the change."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.errors import NoRepresentationError
from cdc_column_texts.plain import hlc_texts

from cdc_core import ContractError, EncodeError, EnvelopeOptions, Op, RowBatch, TableSchema
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
    "UPDATED",
    "file_columns",
    "file_metadata",
    "file_schema",
]

EVENT_TYPE, UPDATED, MVCC, BEFORE = "__crdb__event_type", "__crdb__updated", "__crdb__mvcc_timestamp", "__crdb__before"
METADATA = (EVENT_TYPE, UPDATED, MVCC, BEFORE)
"""Every column that a file may have beside those of the table, in their order."""
EVENTS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.SCAN: "c"}
SCHEMA_KEY = b"cdc.schema"
"""Entry of a file's metadata with the table's schema as JSON: names, source types, primary key, version."""
_EVENTS_BY_NUMBER = pa.array([None, *(EVENTS[op] for op in sorted(EVENTS))])
_OPS_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())


def file_schema(schema: TableSchema, envelope: EnvelopeOptions, options: ParquetOptions) -> pa.Schema:
    """Return the columns of a file of a table's rows."""
    columns = [pa.field(column.name, parquet_type(column.type, options)) for column in schema.columns]
    fields = [*columns, pa.field(EVENT_TYPE, pa.string())]
    if envelope.updated:
        fields.append(pa.field(UPDATED, pa.string()))
    if envelope.mvcc_timestamp:
        fields.append(pa.field(MVCC, pa.string()))
    if envelope.diff:
        fields.append(pa.field(BEFORE, pa.struct(columns)))
    return pa.schema(fields)


def file_metadata(schema: TableSchema) -> dict[bytes, bytes]:
    """Return what a file says of itself: which columns are the key can be seen in no other way."""
    return {SCHEMA_KEY: json.dumps(schema.to_json(), separators=(",", ":")).encode()}


def file_columns(rows: RowBatch, schema: pa.Schema, options: ParquetOptions) -> pa.RecordBatch:
    """Return *rows* in the columns of *schema*, which `file_schema` made of theirs. Raises: EncodeError."""
    arrays = _images(rows, "after", options)
    arrays.append(_EVENTS_BY_NUMBER.take(rows.column("op")))
    if UPDATED in schema.names:
        arrays.append(hlc_texts(rows.column("updated")))
    if MVCC in schema.names:
        arrays.append(hlc_texts(_mvcc(rows)))
    if BEFORE in schema.names:
        arrays.append(_before(rows, schema.field(BEFORE).type, options))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _images(rows: RowBatch, name: str, options: ParquetOptions) -> list[pa.Array]:
    """Return the columns of the table; a deleted row has its key and nulls."""
    structs = rows.column(name)
    arrays = structs.flatten()
    if name == "after" and structs.null_count:
        for number, key in enumerate(rows.schema.primary_key):
            index = rows.schema.after_type.get_field_index(key)
            arrays[index] = pc.coalesce(arrays[index], rows.column("key").field(number))
    written = []
    for column, array in zip(rows.schema.columns, arrays, strict=True):
        try:
            written.append(column_values(array, column.type, options))
        except NoRepresentationError as error:
            place = f"column {column.name} of table {rows.schema.name}"
            shown = rows.shown_key(error.row)
            text = f"{place} cannot become Parquet in the row with key {shown}: {error}"
            raise EncodeError(text, row=error.row) from error
    return written


def _before(rows: RowBatch, type_: pa.StructType, options: ParquetOptions) -> pa.Array:
    if rows.has_before:
        mask = rows.column("before").is_null()
        return pa.StructArray.from_arrays(_images(rows, "before", options), fields=list(type_), mask=mask)
    if not pc.all(pc.is_in(rows.column("op"), _OPS_WITHOUT_BEFORE), min_count=0).as_py():
        raise ContractError(
            f"the source gave updates or deletes of table {rows.schema.name} without the column 'before', "
            "which the option 'diff' asks of it"
        )
    return pa.nulls(len(rows), type_)


def _mvcc(rows: RowBatch) -> pa.StructArray:
    """Return when each row version was committed: where the source does not know it, when it was emitted."""
    updated = rows.column("updated")
    if "mvcc" not in rows.batch.schema.names:
        return updated
    mvcc = rows.column("mvcc")
    return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
