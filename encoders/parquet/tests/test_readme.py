"""The tables of the README match the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.types import parquet_type

from cdc_core import ColumnType, Kind

README = Path(__file__).parents[1] / "README.md"
INT = ColumnType(kind=Kind.INT, source="integer", bits=32)
STRINGS: dict[str, Any] = {"parquet_special_values": "string"}
SAMPLES: dict[str, tuple[ColumnType, dict[str, Any]]] = {
    "bool": (ColumnType(kind=Kind.BOOL, source=""), {}),
    "int of 16, 32, 64 bits": (ColumnType(kind=Kind.INT, source="", bits=64), {}),
    "float of 32, 64 bits": (ColumnType(kind=Kind.FLOAT, source="", bits=64), {}),
    "decimal of up to 38 digits": (ColumnType(kind=Kind.DECIMAL, source="", precision=10, scale=2), STRINGS),
    "any other decimal": (ColumnType(kind=Kind.DECIMAL, source=""), {}),
    "string": (ColumnType(kind=Kind.STRING, source=""), {}),
    "bytes": (ColumnType(kind=Kind.BYTES, source=""), {}),
    "uuid": (ColumnType(kind=Kind.UUID, source=""), {}),
    "date": (ColumnType(kind=Kind.DATE, source=""), STRINGS),
    "time": (ColumnType(kind=Kind.TIME, source=""), {"parquet_time": "string"}),
    "timetz": (ColumnType(kind=Kind.TIMETZ, source=""), {}),
    "timestamp": (ColumnType(kind=Kind.TIMESTAMP, source=""), STRINGS),
    "timestamptz": (ColumnType(kind=Kind.TIMESTAMPTZ, source=""), STRINGS),
    "interval": (ColumnType(kind=Kind.INTERVAL, source=""), {}),
    "json": (ColumnType(kind=Kind.JSON, source=""), {}),
    "enum": (ColumnType(kind=Kind.ENUM, source="", labels=("a",)), {}),
    "array": (ColumnType(kind=Kind.ARRAY, source="", element=INT), {"parquet_arrays": "json"}),
    "composite": (ColumnType(kind=Kind.COMPOSITE, source=""), {}),
}
PARQUET = {
    "bool": "`BOOLEAN`",
    "int64": "`INT(16)`, `INT(32)`, `INT(64)`",
    "double": "`FLOAT`, `DOUBLE`",
    "decimal128(10, 2)": "`DECIMAL` of the precision and scale",
    "string": "`STRING`",
    "binary": "`BYTE_ARRAY`",
    "date32[day]": "`DATE`",
    "time64[us]": "`TIME`, microseconds, not adjusted to UTC",
    "timestamp[us]": "`TIMESTAMP`, microseconds, not adjusted to UTC",
    "timestamp[us, tz=UTC]": "`TIMESTAMP`, microseconds, adjusted to UTC",
    "list<element: int32>": "`LIST` of the items' type",
}


def cell(type_: pa.DataType) -> str:
    return PARQUET[str(type_)]


def types_table() -> str:
    lines = ["| kind | Parquet type |", "|---|---|"]
    for name, (type_, choice) in SAMPLES.items():
        written = cell(parquet_type(type_, ParquetOptions()))
        for option, value in choice.items():
            other = cell(parquet_type(type_, ParquetOptions(**{option: value})))
            written += f'; with `{option} = "{value}"` {other}'
        lines.append(f"| {name} | {written} |")
    return "\n".join(lines)


def test_the_types_table_matches_the_files() -> None:
    assert f"<!-- types: begin -->\n{types_table()}\n<!-- types: end -->" in README.read_text(encoding="utf-8")


def test_the_types_table_has_every_kind() -> None:
    assert {type_.kind for type_, _ in SAMPLES.values()} == set(Kind)
