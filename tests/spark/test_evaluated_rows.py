"""What Spark made of the columns layout, joined with what travelled beside it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
from cdc_testing.scripted import TABLE

from cdc_core import Column, ColumnType, Kind, Op, RowBatch
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.queries.statement import parse_query
from cdc_core.spark.columns import columns_schema, noted, packed_columns
from cdc_core.spark.evaluated_rows import opened

TEXT = Column(name="text", type=ColumnType(kind=Kind.STRING, source="text"))
SCHEMA = replace(TABLE, columns=(*TABLE.columns, TEXT))


def wide(number: int, size: int) -> RowBatch:
    """Return one row with a text of *size* bytes."""
    ids = pa.array([number], pa.int64())
    return RowBatch.of(
        SCHEMA,
        op=pa.array([Op.UPDATE], pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0], pa.int32())),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, [ids, ids, pa.array(["x" * size])]),
    )


def test_one_large_row_is_held_at_a_time() -> None:
    query = bind(parse_query("SELECT id, text FROM counter"), SCHEMA)
    columns = tuple(SCHEMA.column(name) for name in ("id", "text"))
    plan = QueryPlan(query=query, schema=replace(TABLE, columns=columns))
    schema, size = columns_schema([query]), 20_000_000
    packed = [
        [*packed_columns(wide(number, size), queries=[query], schema=schema, deletes_as_rows=True)]
        for number in range(2)
    ]
    most = 0

    def arriving() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for batch in chain(*packed):
            yield batch
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    found = []
    for _, value in opened(arriving(), [plan], deletes_as_rows=True):
        found.append(value.column("after").field("id").to_pylist())
        del value
    assert found == [[0], [1]]
    assert size < most < 1.5 * size


def computed(sizes: Sequence[int]) -> tuple[pa.RecordBatch, QueryPlan]:
    """Return the columns layout of rows for which Spark has computed texts of these *sizes*, and the plan."""
    query = bind(parse_query("SELECT id, upper(text) AS loud FROM counter"), SCHEMA)
    plan = QueryPlan(query=query, schema=replace(TABLE, columns=(TABLE.column("id"), replace(TEXT, name="loud"))))
    ids = pa.array(range(len(sizes)), pa.int64())
    rows = RowBatch.of(
        SCHEMA,
        op=pa.array([Op.UPDATE] * len(sizes), pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0] * len(sizes), pa.int32())),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, [ids, ids, pa.array(["x"] * len(sizes))]),
    )
    schema = columns_schema([query])
    packed = packed_columns(rows, queries=[query], schema=schema, deletes_as_rows=True)
    batch = pa.Table.from_batches([noted(each, schema) for each in packed]).combine_chunks().to_batches()[0]
    texts = pa.array([*[""] * (len(batch) - len(sizes)), *("X" * size for size in sizes)])
    value = pa.StructArray.from_arrays([texts], names=["value"])
    columns = ["kind", "version", "payload", "plan", "position"]
    given = {**{name: batch.column(name) for name in columns}, "o0": pa.StructArray.from_arrays([value], names=["c1"])}
    return pa.record_batch(given), plan


def sizes_of_batches(result: pa.RecordBatch, plan: QueryPlan) -> list[int]:
    """Return how many rows each batch has that a writer gets when Spark passes on five at a time."""
    arriving = (result.slice(start, 5) for start in range(0, len(result), 5))
    return [len(value) for _, value in opened(arriving, [plan], deletes_as_rows=True)]


def test_changes_that_spark_divides_become_one_batch_again() -> None:
    assert sizes_of_batches(*computed([1] * 100)) == [100]


def test_changes_with_large_values_stay_divided() -> None:
    found = sizes_of_batches(*computed([1_000_000] * 20))
    assert sum(found) == 20
    assert max(found) <= 9
