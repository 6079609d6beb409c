"""What Spark made of the columns layout, joined with what travelled beside it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import polars as pl
import psycopg
import pyarrow as pa
import pytest
from cdc_column_texts import joined, json_pieces
from cdc_conformance.rows import Change, rows
from cdc_testing.documented_role import documented
from cdc_testing.drawn_columns import COLUMNS
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.scripted import TABLE
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import BadRowError, Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, watch
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.queries.statement import parse_query
from cdc_core.spark.column_types import row_texts
from cdc_core.spark.columns import columns_schema, noted, packed_columns
from cdc_core.spark.evaluated_rows import opened

TEXT = Column(name="text", type=ColumnType(kind=Kind.STRING, source="text"))
SCHEMA = replace(TABLE, columns=(*TABLE.columns, TEXT))


def wide(number: int, size: int) -> RowBatch:
    """Return one row with a text of *size* bytes."""
    change = Change({"id": number, "n": number, "text": "x" * size}, op=Op.UPDATE)
    return rows(SCHEMA, [change])


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


@pytest.mark.slow
def test_a_query_is_watched_through_a_change_of_its_table(database: str, kept_spark: KeptSpark) -> None:
    query = "SELECT id, 10 / n AS tenth FROM t WHERE id > 1"
    kept_spark.close()  # a watch refuses a session that is not its own
    with psycopg.connect(database, autocommit=True) as sql, kept_spark.lent():
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(4,1))")
        sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 3) g")
        with watch(source=documented(database), query=query) as rows:
            scanned = [json.loads(next(rows).value or b"") for _ in range(2)]
            assert [(row["id"], row["tenth"]) for row in scanned] == [(2, 5), (3, pytest.approx(10 / 3))]
            sql.execute("UPDATE t SET n = 4 WHERE id < 3")
            assert next(rows).key == b"[2]"
            sql.execute("ALTER TABLE t ADD COLUMN v text")
            sql.execute("UPDATE t SET n = 5 WHERE id = 3")
            assert json.loads(next(rows).value or b"") == {"id": 3, "tenth": 2}
            sql.execute("UPDATE t SET n = 0 WHERE id = 3")
            with pytest.raises(BadRowError, match=r"with key {'id': 3}.*cannot be delivered: .*10 / n"):
                next(rows)


LIMITS = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamptz": 2**63 - 1}
EDGES = {
    "time": [86_400_000_000, 0, 45_000_500_000],
    "float4": [0.1, 1e10, -2.5e11, 1e20, 1e21, 1e-6, 1e-7, -0.0, 16777216.0, 3.4e38],
    "float8": [0.1, 1e10, -2.5e11, 1e15, 1e16, 123456789012345680.0, 1e21, 1e-6, 1.5e-7, -0.0, 5e-324],
    "string": ["\x01\x1f\x7f\u2028", 'a"\\\n\r\t'],
    "json": ['{"a": [1.0,\n 2]}', "null"],
    **{name: [limit, -limit - 1, 0, 10**15 if limit > 2**32 else 10**7] for name, limit in LIMITS.items()},
}


@given(st.data())
def test_every_value_is_written_as_the_json_encoder_writes_it(data: st.DataObject) -> None:
    values = {}
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    for name in names:
        type_, drawn = COLUMNS[name]
        known = drawn | st.sampled_from(EDGES[name]) if name in EDGES else drawn
        values[name] = column_of(data.draw(st.lists(st.none() | known, min_size=2, max_size=2)), type_)
    schema = TableSchema(
        name=TableName("d", "public", "t"),
        version=1,
        columns=tuple(Column(name=name, type=COLUMNS[name][0]) for name in names),
        primary_key=(names[0],),
    )
    structs = pa.StructArray.from_arrays(list(values.values()), fields=list(schema.after_type))
    pieces: list[str | pl.Series] = []
    for name in sorted(names):
        pieces += [f'{", " if pieces else "{"}"{name}": ', *json_pieces(values[name], COLUMNS[name][0])]
    wanted = joined([*pieces, "}"], 2).to_list()
    assert row_texts(structs, schema).to_pylist() == wanted
    nothing = pa.StructArray.from_arrays(
        list(values.values()), fields=list(schema.after_type), mask=pa.array([True, False])
    )
    assert row_texts(nothing, schema).to_pylist() == [None, wanted[1]]


def column_of(values: list[object], type_: ColumnType) -> pa.Array:
    if pa.types.is_temporal(type_.arrow):
        return pa.array(values, pa.int32() if pa.types.is_date(type_.arrow) else pa.int64()).view(type_.arrow)
    return pa.array(values, type_.arrow)
