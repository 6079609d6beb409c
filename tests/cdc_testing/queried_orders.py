"""A table with columns of every type, its rows, and queries of it by a real Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from cdc_testing.evaluating import answers, planned
from pyspark.sql import SparkSession

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.queries.bound_query import QueryPlan

COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(8,2)", precision=8, scale=2),
    "amount": ColumnType(kind=Kind.DECIMAL, source="numeric"),
    "Name": ColumnType(kind=Kind.STRING, source="text"),
    "at": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    "day": ColumnType(kind=Kind.DATE, source="date"),
    "hour": ColumnType(kind=Kind.TIME, source="time"),
    "doc": ColumnType(kind=Kind.JSON, source="jsonb"),
    "tags": ColumnType(kind=Kind.ARRAY, source="text[]", element=ColumnType(kind=Kind.STRING, source="text")),
    "raw": ColumnType(kind=Kind.BYTES, source="bytea"),
    "flag": ColumnType(kind=Kind.BOOL, source="boolean"),
    "real": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
}


LOCAL = ColumnType(kind=Kind.TIMESTAMP, source="timestamp without time zone")


NO_DAY = 2**31 - 1
"""The date infinity."""


def table(version: int = 1, **more: ColumnType) -> TableSchema:
    columns = tuple(Column(name=name, type=type_) for name, type_ in {**COLUMNS, **more}.items())
    return TableSchema(name=TableName("db", "public", "orders"), version=version, columns=columns, primary_key=("id",))


SCHEMA = table()


def rows(
    after: Sequence[dict[str, Any] | None],
    *,
    before: Sequence[dict[str, Any] | None] | None = None,
    ops: Sequence[Op] | None = None,
    schema: TableSchema = SCHEMA,
    **more: Any,
) -> RowBatch:
    """Return rows with the keys 0, 1, …; a column that is not given is null."""
    wall = pa.array(range(1_700_000_000_000_000_001, 1_700_000_000_000_000_001 + len(after)), pa.int64())
    keyed = [None if row is None else {"id": key, **row} for key, row in enumerate(after)]
    given = [Op.DELETE if row is None else Op.UPDATE for row in after] if ops is None else ops
    return RowBatch.of(
        schema,
        op=pa.array(given, pa.uint8()),
        updated=RowBatch.timestamps(wall, pa.array([7] * len(after), pa.int32())),
        key=pa.array([{"id": key} for key in range(len(after))], schema.key_type),
        after=pa.array(keyed, schema.after_type),
        before=None if before is None else pa.array(before, schema.after_type),
        **more,
    )


def plan(session: SparkSession, text: str, *schemas: TableSchema) -> list[QueryPlan]:
    return planned(session, text, *(schemas or (SCHEMA,)))


def one(session: SparkSession, text: str, *batches: RowBatch, deletes_as_rows: bool = True) -> RowBatch:
    (found,) = answers(session, plan(session, text), *batches, deletes_as_rows=deletes_as_rows)
    assert isinstance(found, RowBatch), str(found)
    return found


EVERYTHING = {
    "price": "12345.60",
    "amount": "1e3",
    "Name": "é\x00\n",
    "at": 2**63 - 1,
    "day": NO_DAY,
    "hour": 86_400_000_000,
    "doc": '{"a": 1}',
    "tags": '["a"]',
    "raw": b"\x00\xff",
    "flag": True,
    "real": float("-inf"),
}
