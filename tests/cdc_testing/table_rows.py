"""Rows of a made-up table, from Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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


MakeRows = Callable[..., RowBatch]


@pytest.fixture(scope="session")
def row() -> type[Row]:
    return Row


@pytest.fixture(scope="session")
def make_rows() -> MakeRows:
    """A function that builds a RowBatch from the types of the columns and a list of `Row`."""

    def make(
        types: Mapping[str, ColumnType],
        rows: Sequence[Row],
        *,
        primary_key: Sequence[str],
        diff: bool = False,
        mvcc: bool = False,
        version: int = 1,
    ) -> RowBatch:
        schema = TableSchema(
            name=TableName("shop", "public", "orders"),
            version=version,
            columns=tuple(Column(name=name, type=type_) for name, type_ in types.items()),
            primary_key=tuple(primary_key),
        )

        def structs(type_: pa.StructType, values: list[Mapping[str, Any] | None]) -> pa.StructArray:
            fields = [
                pa.array([None if value is None else value[field.name] for value in values], field.type)
                for field in type_
            ]
            return RowBatch.struct(type_, fields, mask=pa.array([value is None for value in values], pa.bool_()))

        def timestamps(values: list[Timestamp]) -> pa.StructArray:
            return RowBatch.timestamps(
                pa.array([value.wall for value in values], pa.int64()),
                pa.array([value.logical for value in values], pa.int32()),
            )

        keys: list[Mapping[str, Any] | None] = []
        for row in rows:
            source = row.after if row.after is not None else row.before
            if row.key is not None:
                keys.append(dict(zip(primary_key, row.key, strict=True)))
            else:
                assert source is not None
                keys.append({name: source[name] for name in primary_key})
        return RowBatch.of(
            schema,
            op=pa.array([int(row.op) for row in rows], pa.uint8()),
            updated=timestamps([row.updated for row in rows]),
            key=structs(schema.key_type, keys),
            after=structs(schema.after_type, [row.after for row in rows]),
            before=structs(schema.after_type, [row.before for row in rows]) if diff else None,
            mvcc=timestamps([row.updated if row.mvcc is None else row.mvcc for row in rows]) if mvcc else None,
            unavailable=unavailable_column(
                {name: np.array([name in row.unavailable for row in rows], np.bool_) for name in types}
            ),
        )

    return make
