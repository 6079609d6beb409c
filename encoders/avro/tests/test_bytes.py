"""What the encoder writes is, byte for byte, what fastavro writes row by row."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.pieces import joined
from cdc_encoder_avro.types import branches
from cdc_encoder_avro.values import value_pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import ColumnType, Kind

SPECIAL_DECIMALS = ("NaN", "Infinity", "-Infinity")
I64 = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from([sign * (1 << bits) + add for bits in range(63) for sign in (1, -1) for add in (-1, 0, 1)])
TEXT = st.text(max_size=20).filter(lambda text: "\x00" not in text) | st.sampled_from(
    ["", "é", "😀", "x" * 200, "y" * 9000]
)


def moments(limit: int) -> st.SearchStrategy[int]:
    return st.integers(-(2**limit) + 1, 2**limit - 2)


def decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    top = 10**precision - 1
    edges = [s * (1 << b) + a for b in range(top.bit_length()) for s in (1, -1) for a in (-1, 0, 1)]
    numbers = st.integers(-top, top) | st.sampled_from([n for n in edges if abs(n) <= top])
    texts = numbers.map(lambda number: f"{Decimal(number).scaleb(-scale, Context(prec=2000)):f}")
    return texts | st.sampled_from(SPECIAL_DECIMALS)


def column(kind: Kind, **more: Any) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind), **more)


COLUMNS: Mapping[str, tuple[ColumnType, st.SearchStrategy[Any]]] = {
    "bool": (column(Kind.BOOL), st.booleans()),
    "int2": (column(Kind.INT, bits=16), st.integers(-(2**15), 2**15 - 1)),
    "int4": (column(Kind.INT, bits=32), st.integers(-(2**31), 2**31 - 1)),
    "int8": (column(Kind.INT, bits=64), I64 | EDGES),
    "small int8": (column(Kind.INT, bits=64), st.integers(-8192, 8191)),
    "float4": (column(Kind.FLOAT, bits=32), st.floats(width=32)),
    "float8": (column(Kind.FLOAT, bits=64), st.floats()),
    "string": (column(Kind.STRING), TEXT),
    "bytes": (column(Kind.BYTES), st.binary(max_size=20)),
    "uuid": (column(Kind.UUID), st.uuids().map(str)),
    "date": (column(Kind.DATE), moments(31)),
    "time": (column(Kind.TIME), st.integers(0, 86_400_000_000 - 1)),
    "timetz": (column(Kind.TIMETZ), TEXT),
    "timestamp": (column(Kind.TIMESTAMP), moments(63)),
    "timestamptz": (column(Kind.TIMESTAMPTZ), moments(63)),
    "interval": (column(Kind.INTERVAL), TEXT),
    "json": (column(Kind.JSON), TEXT),
    "composite": (column(Kind.COMPOSITE), TEXT),
    "enum": (column(Kind.ENUM, labels=("red", "green", "blue")), st.sampled_from(["red", "green", "blue"])),
    "decimal": (column(Kind.DECIMAL), decimals(30, 5)),
    **{
        f"decimal({precision},{scale})": (column(Kind.DECIMAL, precision=precision, scale=scale), decimals(p, s))
        for precision, scale, p, s in [
            (1, 0, 1, 0), (4, 2, 4, 2), (10, 2, 10, 2), (18, 0, 18, 0), (18, 18, 18, 18), (19, 4, 19, 4),
            (38, 10, 38, 10), (39, 0, 39, 0), (76, 30, 76, 30), (77, 1, 77, 1), (400, 200, 400, 200),
            (3, -2, 3, -2), (2, 4, 2, 4),
        ]
    },
}  # fmt: skip


def oracle(type_: ColumnType, value: Any, options: AvroOptions) -> bytes:
    union = ["null", *branches(type_, options, enum_name="colours")]
    # inside a record, since fastavro takes Python's own types for logical ones there as anywhere
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "f", "type": union}]})
    if (
        value is not None
        and type_.kind is Kind.DECIMAL
        and type_.precision is not None
        and value not in SPECIAL_DECIMALS
    ):
        value = Decimal(value)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"f": value})
    return out.getvalue()


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_kind_is_written_as_fastavro_writes_it(name: str, data: st.DataObject) -> None:
    type_, strategy = COLUMNS[name]
    values = data.draw(st.lists(st.none() | strategy, max_size=8) | st.lists(strategy, max_size=8))
    options = AvroOptions(avro_enum=data.draw(st.sampled_from(["string", "enum"])))
    array = pa.array([None, *values, None], type_.arrow).slice(1, len(values))
    encoded = joined(value_pieces(array, type_, options), len(array)).to_pylist()
    assert encoded == [oracle(type_, value, options) for value in plain_values(array, values)]


def plain_values(array: pa.Array, values: list[Any]) -> list[Any]:
    """Return what a loop over rows would write; NaN keeps the bits that it has in Arrow."""
    return array.to_pylist() if pa.types.is_floating(array.type) else values
