"""Rows of a made-up table, from Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core import Column, ColumnType, Op, RowBatch, TableName, TableSchema, Timestamp, unavailable_column


@dataclass(frozen=True, kw_only=True)
class Row:
    """One change, in Python values; the key is taken from `after`, or from `before` for a delete."""

    op: Op = Op.INSERT
    after: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    key: tuple[Any, ...] | None = None
    updated: Timestamp = Timestamp(1_700_000_000_000_000_000)
    mvcc: Timestamp | None = None
    unavailable: tuple[str, ...] = ()


def make_rows(
    types: Mapping[str, ColumnType],
    rows: Sequence[Row],
    *,
    primary_key: Sequence[str],
    diff: bool = False,
    mvcc: bool = False,
    version: int = 1,
) -> RowBatch:
    """Return a batch of *rows* of a table with columns of these *types*."""
    schema = TableSchema(
        name=TableName("shop", "public", "orders"),
        version=version,
        columns=tuple(Column(name=name, type=type_) for name, type_ in types.items()),
        primary_key=tuple(primary_key),
    )
    return RowBatch.of(
        schema,
        op=pa.array([int(row.op) for row in rows], pa.uint8()),
        updated=_timestamps([row.updated for row in rows]),
        key=_structs(schema.key_type, [_key_of(row, primary_key) for row in rows]),
        after=_structs(schema.after_type, [row.after for row in rows]),
        before=_structs(schema.after_type, [row.before for row in rows]) if diff else None,
        mvcc=_timestamps([row.updated if row.mvcc is None else row.mvcc for row in rows]) if mvcc else None,
        unavailable=unavailable_column(
            {name: np.array([name in row.unavailable for row in rows], np.bool_) for name in types}
        ),
    )


def _key_of(row: Row, primary_key: Sequence[str]) -> Mapping[str, Any]:
    if row.key is not None:
        return dict(zip(primary_key, row.key, strict=True))
    image = row.before if row.after is None else row.after
    assert image is not None
    return {name: image[name] for name in primary_key}


def _structs(type_: pa.StructType, values: Sequence[Mapping[str, Any] | None]) -> pa.StructArray:
    fields = [pa.array([value and value[field.name] for value in values], field.type) for field in type_]
    return RowBatch.struct(type_, fields, mask=pa.array([value is None for value in values], pa.bool_()))


def _timestamps(values: Sequence[Timestamp]) -> pa.StructArray:
    return RowBatch.timestamps(
        pa.array([value.wall for value in values], pa.int64()),
        pa.array([value.logical for value in values], pa.int32()),
    )
