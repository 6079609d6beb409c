"""A deleted row has the values of its key that its columns have a place for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cdc_column_texts import columns_with_keys
from cdc_conformance.rows import TEXT
from cdc_testing.table_rows import Row, make_rows

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableSchema

INT = ColumnType(kind=Kind.INT, source="integer", bits=32)
KEY = tuple(Column(name=name, type=type_, nullable=False) for name, type_ in (("a", INT), ("b", TEXT)))


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ((Column(name="x", type=INT), KEY[1]), [[None], ["é"]]),
        ((KEY[0],), [[7]]),
        ((Column(name="x", type=INT),), [[None]]),
        ((Column(name="a", type=TEXT), KEY[1]), [[None], ["é"]]),
        ((Column(name="b", type=TEXT),), [[None]]),
    ],
)
def test_a_deleted_row_has_what_its_columns_have_of_the_key(columns: tuple[Column, ...], wanted: list[Any]) -> None:
    made: RowBatch = make_rows({"a": INT, "b": TEXT}, [Row(op=Op.DELETE, key=(7, "é"))], primary_key=["a", "b"])
    schema: TableSchema = replace(made.schema, columns=columns, key=KEY)
    rows = RowBatch.of(
        schema,
        op=made.column("op"),
        updated=made.column("updated"),
        key=made.column("key"),
        after=pa.nulls(1, schema.after_type),
    )
    assert [values.to_pylist() for values in columns_with_keys(rows)] == wanted
