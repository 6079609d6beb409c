"""Changes the rows of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from cdc_core import Op, RowBatch, SpanMark, TableSchema, Timestamp

__all__ = ["Items", "Row", "edited", "one_row", "op_of", "rebuilt", "stamp", "updated_of"]

Row = dict[str, Any]
Items = list[RowBatch | SpanMark]


def rebuilt(rows: RowBatch, values: Sequence[Row], *, schema: TableSchema | None = None) -> RowBatch:
    """Return a batch like *rows* with *values* as its rows."""
    schema = schema or rows.schema
    types = {"key": schema.key_type, "after": schema.after_type, "before": schema.after_type}
    fields = [pa.field(field.name, types.get(field.name, field.type)) for field in rows.batch.schema]
    return RowBatch(schema=schema, batch=pa.RecordBatch.from_pylist(list(values), schema=pa.schema(fields)))


def edited(items: Items, edit: Callable[[list[Row]], list[Row]]) -> Items:
    """Return *items* with the rows of each batch passed through *edit*."""
    return [item if isinstance(item, SpanMark) else rebuilt(item, edit(item.batch.to_pylist())) for item in items]


def one_row(schema: TableSchema, *, id_: int, after: Row, at: Timestamp) -> RowBatch:
    """Return a batch with one updated row."""
    return RowBatch.of(
        schema,
        op=pa.array([int(Op.UPDATE)], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([at.wall], pa.int64()), pa.array([at.logical], pa.int32())),
        key=pa.array([{"id": id_}], schema.key_type),
        after=pa.array([after], schema.after_type),
    )


def op_of(row: Row) -> Op:
    return Op(row["op"])


def updated_of(row: Row) -> Timestamp:
    return Timestamp(**row["updated"])


def stamp(timestamp: Timestamp) -> Row:
    """Return a timestamp as batches hold it."""
    return {"wall": timestamp.wall, "logical": timestamp.logical}
