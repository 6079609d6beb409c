"""Columns that are null in every row: generated columns whose values are not in the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import RowBatch, SpanMark, TableName, TableSchema
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["with_null_columns"]


def with_null_columns(
    items: Iterator[RowBatch | SpanMark], versions: Iterable[TableVersion]
) -> Iterator[RowBatch | SpanMark]:
    """Return *items* with the null columns that *versions* add to the rows of their tables."""
    schemas = {
        (version.schema.name, version.schema.version): version.row_schema for version in versions if version.nulls
    }
    if not schemas:
        return items
    return (_widened(item, schemas) if isinstance(item, RowBatch) else item for item in items)


def _widened(rows: RowBatch, schemas: dict[tuple[TableName, int], TableSchema]) -> RowBatch:
    schema = schemas.get((rows.schema.name, rows.schema.version))
    if schema is None:
        return rows
    columns = {name: rows.column(name) for name in rows.batch.schema.names}
    for name in ("after", "before"):
        if name in columns:
            columns[name] = _with_nulls(columns[name], schema.after_type)
    return RowBatch.of(schema, **columns)


def _with_nulls(image: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    known = image.type.num_fields
    arrays = [image.field(index) for index in range(known)]
    arrays += [pa.nulls(len(image), type_.field(index).type) for index in range(known, type_.num_fields)]
    return RowBatch.struct(type_, arrays, mask=pc.is_null(image))
