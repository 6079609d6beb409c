"""The keys of messages when another column than the primary key gives them, as the option key_column says."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, EncodeError, TerminalError
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.unavailable import unavailable_by_column


def keyed_schema(schema: TableSchema, column: str) -> TableSchema:
    """Return *schema* with *column* as its key. Raises: ConfigError when it has no such column."""
    if all(known.name != column for known in schema.columns):
        raise ConfigError(
            f"table {schema.name} has no column '{column}', which the option key_column names; add the column, or use a"
            " separate changefeed for the table"
        )
    return replace(schema, primary_key=(column,), key=())


def keyed_rows(rows: RowBatch, column: str) -> RowBatch:
    """Return *rows* with the value of *column* as their key, which is null where that is null or unknown.

    That of a deleted row is in its key, or in the row before it, if the source gives one; otherwise it is unknown.
    Raises: EncodeError for an unavailable value, TerminalError when the table has no such column anymore.
    """
    try:
        schema = keyed_schema(rows.schema, column)
    except ConfigError as error:
        raise TerminalError(str(error)) from None
    unknown = unavailable_by_column(rows).get(column)
    if unknown is not None:
        row = int(unknown.argmax())
        raise EncodeError(
            f"column {column} of table {rows.schema.name}, which key_column names, is unavailable in the row with key"
            f" {rows.shown_key(row)}, because the update left a large value unchanged. Run ALTER TABLE"
            f" {rows.schema.name} REPLICA IDENTITY FULL, or name another column",
            row=row,
        )
    keys = RowBatch.struct(schema.key_type, [_values(rows, column)])
    index = rows.batch.schema.get_field_index("key")
    return RowBatch(schema=schema, batch=rows.batch.set_column(index, pa.field("key", schema.key_type), keys))


def _values(rows: RowBatch, column: str) -> pa.Array:
    after = rows.column("after")
    values = _field(after, column)
    if after.null_count == 0:
        return values
    if column in rows.schema.primary_key:
        deleted = _field(rows.column("key"), column)
    elif rows.has_before:
        deleted = _field(rows.column("before"), column)
    else:
        deleted = pa.scalar(None, values.type)
    return pc.if_else(after.is_valid(), values, deleted)


def _field(structs: pa.StructArray, column: str) -> pa.Array:
    """Return a column of *structs*, null where these are null."""
    return pc.struct_field(structs, [structs.type.get_field_index(column)])
