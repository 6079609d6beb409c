"""The row before a change as one JSON object has the values that the JSON encoder writes beside it."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from cdc_column_texts import joined, json_pieces
from cdc_testing.drawn_columns import COLUMNS
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Column, ColumnType, TableName, TableSchema
from cdc_core.spark.column_types import row_texts

LIMITS = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamptz": 2**63 - 1}
EDGES = {
    "time": [86_400_000_000, 0, 45_000_500_000],
    "float4": [0.1, 1e20, 1e21, 1e-6, 1e-7, -0.0, 16777216.0, 3.4e38],
    "float8": [0.1, 1e15, 1e16, 123456789012345680.0, 1e21, 1e-6, 1.5e-7, -0.0, 5e-324],
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
