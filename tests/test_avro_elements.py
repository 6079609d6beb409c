"""The Avro encoder writes the items of PostgreSQL arrays like columns of their type."""

from __future__ import annotations

import random

import pyarrow as pa
from cdc_column_texts.binary import joined
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.values import value_pieces
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES

from cdc_core import ColumnType

_ROWS = 100
_NO_ARRAY_OF_THEM = {"positives", "int2vector"}
_NULL_IS_NULL = {"json", "jsonb", "document"}
"""In an array, a JSON null and an SQL NULL are the same."""
_LEFT_OUT = _NO_ARRAY_OF_THEM | _NULL_IS_NULL
_TYPES = [name for name in (*BINARY_MAKERS, *TEXT_MAKERS) if not name.endswith("[]") and name not in _LEFT_OUT]
_OPTIONS = AvroOptions(avro_special_values="string")


def test_an_item_is_written_like_a_column_of_its_type(database: str) -> None:
    rng = random.Random(1)
    with LogProbe(database) as probe:
        probe.execute(TYPES)
        for number, name in enumerate(_TYPES):
            table = f"t{number}"
            probe.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a {name}[], v {name})")
            make = {**BINARY_MAKERS, **TEXT_MAKERS}[name]
            values = [make(rng) for _ in range(_ROWS)]
            probe.execute(
                f"INSERT INTO {table} SELECT n, ARRAY[t.x::{name}, NULL], t.x::{name}"
                " FROM unnest(%s::text[]) WITH ORDINALITY t(x, n)",
                [values],
            )
            version = probe.version(table)
            rows = probe.scan(version)
            arrays, alone = (_written(rows.field(column), version.schema.column(column).type) for column in "av")
            assert len(arrays) == _ROWS, name
            assert arrays == [b"\x02\x04" + value + b"\x00\x00" for value in alone], name


def _written(array: pa.Array, type_: ColumnType) -> list[bytes]:
    unions: list[bytes] = joined(value_pieces(array, type_, _OPTIONS), len(array)).to_pylist()
    return unions
