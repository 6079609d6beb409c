"""Columns of every kind with values that hypothesis draws, for tests of encoders against other writers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import polars as pl
import pyarrow as pa
from cdc_column_texts import joined, json_pieces
from hypothesis import strategies as st

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema

SPECIAL_DECIMALS = ("NaN", "Infinity", "-Infinity")
I64 = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from([sign * (1 << bits) + add for bits in range(63) for sign in (1, -1) for add in (-1, 0, 1)])
TEXT = st.text(max_size=20).filter(lambda text: "\x00" not in text) | st.sampled_from(
    ["", "é", "😀", "x" * 200, "y" * 9000]
)


def datetimes(limit: int) -> st.SearchStrategy[int]:
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
    "date": (column(Kind.DATE), datetimes(31)),
    "time": (column(Kind.TIME), st.integers(0, 86_400_000_000 - 1)),
    "timetz": (column(Kind.TIMETZ), TEXT),
    "timestamp": (column(Kind.TIMESTAMP), datetimes(63)),
    "timestamptz": (column(Kind.TIMESTAMPTZ), datetimes(63)),
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


ITEMS = {name: COLUMNS[name] for name in COLUMNS if COLUMNS[name][0].kind not in (Kind.JSON, Kind.COMPOSITE)}
"""Columns whose values can be items of an array of typed values."""


def json_texts(items: pa.Array, element: ColumnType) -> list[str]:
    """Return items as the sources write them into JSON arrays, which is as the JSON encoder writes columns."""
    return [text.decode() for text in joined(json_pieces(items, element), len(items)).cast(pl.Binary)]


DrawnRow = tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None, int, int]
"""Key, row after and row before the change, wall time and logical counter."""


def drawn_batch(data: st.DataObject) -> tuple[RowBatch, list[DrawnRow]]:
    """Return updates of a table with drawn columns, and the rows from which they are made."""
    # a NaN of 32 bits changes its bits on the way into Arrow
    names = data.draw(st.lists(st.sampled_from(sorted({*COLUMNS} - {"float4"})), min_size=1, max_size=5, unique=True))
    # Columns have no name that another one begins with: libraries differ in how they sort those.
    columns = {f"{name}.": COLUMNS[name] for name in names}
    types = {name: type_ for name, (type_, _) in columns.items()}
    schema = TableSchema(
        name=TableName("shop", "public", data.draw(st.text("aé_ ", min_size=1, max_size=3))),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in types.items()),
        primary_key=tuple(data.draw(st.lists(st.sampled_from(list(columns)), min_size=1, unique=True))),
    )
    images = st.none() | st.fixed_dictionaries({name: st.none() | values for name, (_, values) in columns.items()})
    keys = st.fixed_dictionaries({name: columns[name][1] for name in schema.primary_key})
    drawn = data.draw(st.lists(st.tuples(keys, images, images, st.integers(0, 2**62), st.integers(0, 3)), max_size=6))
    rows = [(key, None if after is None else after | key, *rest) for key, after, *rest in drawn]
    batch = RowBatch.of(
        schema,
        op=pa.array([int(Op.UPDATE)] * len(rows), pa.uint8()),
        updated=RowBatch.timestamps(
            pa.array([row[3] for row in rows], pa.int64()), pa.array([row[4] for row in rows], pa.int32())
        ),
        key=pa.array([row[0] for row in rows], schema.key_type),
        after=pa.array([row[1] for row in rows], schema.after_type),
        before=pa.array([row[2] for row in rows], schema.after_type),
    )
    return batch, rows
