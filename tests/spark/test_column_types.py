"""Columns whose type differs between versions of a table have a type that can hold all values of both."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core import Column, ColumnType, ConfigError, Kind, Op, RowBatch, TableName, TableSchema, unavailable_column
from cdc_core.spark.changes import _columns, _target
from cdc_core.spark.column_types import cast, common_type, type_of

MAX = 2**63 - 1
DECIMALS = [(None, None), (10, 2), (38, 0), (38, 30), (30, 10), (50, 5), (3, -2), (5, 2), (2, 4)]


def decimal(precision: int | None = None, scale: int | None = None) -> ColumnType:
    return ColumnType(kind=Kind.DECIMAL, source="numeric", precision=precision, scale=scale)


def integer(bits: int) -> ColumnType:
    return ColumnType(kind=Kind.INT, source="integer", bits=bits)


def real(bits: int) -> ColumnType:
    return ColumnType(kind=Kind.FLOAT, source="double precision", bits=bits)


def other(kind: Kind) -> ColumnType:
    return ColumnType(kind=kind, source=str(kind))


def greatest(precision: int | None, scale: int | None) -> str:
    """Return the largest decimal of this precision and scale."""
    digits, scale = precision or 100, scale or 0
    text = "9" * digits + "0" * -min(scale, 0)
    return text if scale <= 0 else str(Decimal(f"{text}E-{scale}") if scale <= digits else f"0.{text.zfill(scale)}")


VALUES: dict[str, tuple[ColumnType, pa.Array]] = {
    "bool": (other(Kind.BOOL), pa.array([True, None])),
    **{f"int{n}": (integer(n), pa.array([2 ** (n - 1) - 1, -(2 ** (n - 1)), None])) for n in (16, 32, 64)},
    **{f"float{n}": (real(n), pa.array([0.1, float("nan"), float("-inf"), None])) for n in (32, 64)},
    **{
        f"numeric({p},{s})": (decimal(p, s), pa.array([greatest(p, s), f"-{greatest(p, s)}", None]))
        for p, s in DECIMALS
    },
    "date": (other(Kind.DATE), pa.array([0, 2**31 - 1, -(2**31), 3_000_000, -800_000, None], pa.int32())),
    "time": (other(Kind.TIME), pa.array([86_400_000_000, 5, None])),
    "bytes": (other(Kind.BYTES), pa.array([b"\xff\x00", b"", None])),
    **{
        str(kind): (other(kind), pa.array([0, MAX, -MAX - 1, 2**62, -(2**62), None]))
        for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
    },
    **{
        str(kind): (other(kind), pa.array(["é", None]))
        for kind in Kind
        if other(kind).arrow == pa.string() and kind is not Kind.DECIMAL
    },
}


@pytest.mark.parametrize("one", VALUES)
def test_the_common_type_with_any_other_type_holds_every_value(one: str) -> None:
    type_, values = VALUES[one]
    for two, (second, _) in VALUES.items():
        common = common_type(type_of(type_), type_of(second))
        assert common == common_type(type_of(second), type_of(type_)), two
        given = cast(values.cast(type_.arrow), common)
        assert given.type == common
        assert given.is_null().equals(values.is_null()), two
        if pa.types.is_string(common):
            assert len(set(given.to_pylist())) == len(set(map(str, values))), two
        elif pa.types.is_decimal(common):
            exact = [None if value is None else Decimal(value) for value in values.to_pylist()]
            assert given.to_pylist() == exact, two
        else:
            assert given.cast(type_.arrow).to_string() == values.cast(type_.arrow).to_string(), two


@pytest.mark.parametrize(
    ("old", "new", "common"),
    [
        (integer(32), decimal(10, 2), pa.decimal128(12, 2)),
        (integer(64), decimal(10, 2), pa.decimal128(21, 2)),
        (integer(16), decimal(10, 2), pa.decimal128(10, 2)),
        (integer(64), decimal(38, 30), pa.string()),
        (decimal(10, 2), decimal(12, 4), pa.decimal128(12, 4)),
        (decimal(38, 0), decimal(10, 2), pa.string()),
        (decimal(30, 10), real(64), pa.string()),
        (integer(64), real(64), pa.string()),
        (integer(32), real(64), pa.float64()),
        (integer(32), real(32), pa.float64()),
        (integer(16), real(32), pa.float32()),
        (integer(16), integer(64), pa.int64()),
        (real(32), real(64), pa.float64()),
        (other(Kind.BYTES), integer(32), pa.string()),
        (other(Kind.DATE), other(Kind.TIMESTAMP), pa.string()),
    ],
)
def test_the_common_type_is_the_narrowest_that_holds_all_values(old: ColumnType, new: ColumnType, common: Any) -> None:
    assert common_type(type_of(old), type_of(new)) == common


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([b"\xff\x00", b""]), ["\\xff00", "\\x"]),
        (pa.array([float("nan"), float("inf"), -float("inf"), 0.1]), ["NaN", "Infinity", "-Infinity", "0.1"]),
        (pa.array([86_400_000_000, 1]).cast(pa.time64("us")), ["24:00:00.000000", "00:00:00.000001"]),
        (pa.array([date(2020, 2, 29)]), ["2020-02-29"]),
        (
            pa.array([2**31 - 1, -(2**31), 11_248_737, -800_000], pa.int32()).cast(pa.date32()),
            ["infinity", "-infinity", "32767-12-31", "-0221-09-04"],
        ),
        (pa.array([datetime(2020, 1, 1, 12)], pa.timestamp("us")), ["2020-01-01 12:00:00.000000"]),
        (
            pa.array([MAX, -MAX - 1, 2**62, 0]).cast(pa.timestamp("us", "UTC")),
            ["infinity", "-infinity", "148108-07-06 14:00:27.387904Z", "1970-01-01 00:00:00.000000Z"],
        ),
    ],
)
def test_text_shows_the_exact_value(values: pa.Array, texts: list[str]) -> None:
    assert cast(values, pa.string()).to_pylist() == texts


def one_row(type_: ColumnType, price: Any) -> RowBatch:
    columns = (Column(name="id", type=integer(32)), Column(name="price", type=type_))
    schema = TableSchema(name=TableName("d", "public", "orders"), version=1, columns=columns, primary_key=("id",))
    ids = pa.array([1], pa.int32())
    return RowBatch.of(
        schema,
        op=pa.array([Op.INSERT], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([1]), pa.array([0], pa.int32())),
        key=RowBatch.struct(schema.key_type, [ids]),
        after=RowBatch.struct(schema.after_type, [ids, pa.array([price], type_.arrow)]),
    )


def test_a_nan_decimal_is_an_error_that_names_as_text() -> None:
    rows = one_row(decimal(10, 2), "NaN")
    with pytest.raises(ConfigError, match=r"column price of table public.orders in file f .*as_text=\['price'\]"):
        _columns(rows, _target([rows.schema], prefix=""), path="f")
    read = _columns(rows, _target([rows.schema], prefix="", as_text=["price"]), path="f")
    assert read.column("price").to_pylist() == ["NaN"]


def test_a_value_that_is_unavailable_is_an_error_and_not_a_null() -> None:
    whole = one_row(other(Kind.STRING), None)
    lacking = unavailable_column({"price": np.array([True])})
    rows = RowBatch(schema=whole.schema, batch=whole.batch.append_column("unavailable", lacking))
    with pytest.raises(ConfigError, match=r"column price of table public.orders is unavailable in rows of file f,"):
        _columns(rows, _target([rows.schema], prefix=""), path="f")


def test_an_unknown_column_in_as_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"table public.orders has no column 'prize', which as_text names"):
        _target([one_row(decimal(10, 2), "1.00").schema], prefix="", as_text=["price", "prize"])
