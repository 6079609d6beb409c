"""Rows of a query that does not select the key of its table, in each format."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from cdc_column_texts import columns_with_keys
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.json_schema import key_schema
from cdc_encoder_json.options import JsonOptions

from cdc_core import Column, ColumnType, EncoderContext, Envelope, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import output_schema
from cdc_core.queries.statement import parse_query

INT = ColumnType(kind=Kind.INT, source="integer", bits=32)
TEXT = ColumnType(kind=Kind.STRING, source="text")


@pytest.fixture(params=["label", "id"])
def rows(request: pytest.FixtureRequest) -> RowBatch:
    """A row without its key, or with another column of the key's name."""
    schema = TableSchema(
        name=TableName("db", "public", "orders"),
        version=1,
        columns=(Column(name=request.param, type=TEXT),),
        primary_key=("id",),
        key=(Column(name="id", type=INT, nullable=False),),
    )
    return RowBatch.of(
        schema,
        op=pa.array([Op.INSERT], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([5], pa.int64()), pa.array([6], pa.int32())),
        key=pa.array([{"id": 7}], schema.key_type),
        after=pa.array([{request.param: "x"}], schema.after_type),
    )


def test_json_has_the_key_of_the_table(rows: RowBatch) -> None:
    envelope = Envelope(name="bare", updated=True, key_in_value=True)
    context = EncoderContext(changefeed="c", envelope=envelope, options=JsonOptions())
    (key,), (value,) = (
        column.to_pylist() for column in (lambda m: (m.key, m.value))(JsonEncoder(context).encode(rows, topic="t"))
    )
    assert json.loads(key) == [7]
    decoder = JsonDecoder(context)
    decoded = decoder.message(rows.schema, key, value)
    assert (decoded.key, decoded.key_in_value) == ((7,), (7,))
    found = decoder.rows(rows.schema, value + b"\n")
    assert found.column("key").to_pylist() == [{"id": 7}]
    assert found.column("after").equals(rows.column("after"))


def test_a_deleted_row_has_no_value_where_only_the_name_is_that_of_the_key() -> None:
    columns = tuple(Column(name=name, type=INT) for name in ("id", "part", "n"))
    table = TableSchema(
        name=TableName("db", "public", "orders"), version=1, columns=columns, primary_key=("id", "part")
    )
    query = bind(parse_query("SELECT part, id + 1000 AS id FROM orders"), table)
    schema = output_schema(query, {"id": INT})
    deleted = RowBatch.of(
        schema,
        op=pa.array([Op.DELETE], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([5], pa.int64()), pa.array([6], pa.int32())),
        key=pa.array([{"id": 7, "part": 8}], schema.key_type),
        after=pa.array([None], schema.after_type),
    )
    assert [values.to_pylist() for values in columns_with_keys(deleted)] == [[8], [None]]


def test_the_json_schema_of_the_key_is_that_of_the_table(rows: RowBatch) -> None:
    assert '"integer"' in json.dumps(json.loads(key_schema(rows.schema, Envelope()))["items"])


def test_a_schema_keeps_its_key_as_json(rows: RowBatch) -> None:
    assert TableSchema.from_json(rows.schema.to_json()) == rows.schema
