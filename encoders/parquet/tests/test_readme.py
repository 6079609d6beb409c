"""The tables of the README match the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cdc_encoder_parquet.options import ParquetOptions
from cdc_encoder_parquet.types import parquet_type

from cdc_core import ColumnType, Kind

README = Path(__file__).parents[1] / "README.md"
DETAILS: dict[Kind, dict[str, Any]] = {
    Kind.INT: {"bits": 64},
    Kind.FLOAT: {"bits": 64},
    Kind.DECIMAL: {"precision": 10, "scale": 2},
    Kind.ENUM: {"labels": ("a",)},
    Kind.ARRAY: {"element": ColumnType(kind=Kind.INT, source="", bits=32)},
}
NAMES = {
    Kind.INT: "int of 16, 32, 64 bits",
    Kind.FLOAT: "float of 32, 64 bits",
    Kind.DECIMAL: "decimal of up to 38 digits",
}
STRINGS = ("parquet_special_values", "string")
CHOICES = {
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), STRINGS),
    Kind.TIME: ("parquet_time", "string"),
    Kind.ARRAY: ("parquet_arrays", "json"),
}
UNLIMITED = ColumnType(kind=Kind.DECIMAL, source="")
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


def cell(type_: ColumnType) -> str:
    written = PARQUET[str(parquet_type(type_, ParquetOptions()))]
    option, value = CHOICES.get(type_.kind, ("", ""))
    if not option or type_ == UNLIMITED:
        return written
    options: dict[str, Any] = {option: value}
    return f'{written}; with `{option} = "{value}"` {PARQUET[str(parquet_type(type_, ParquetOptions(**options)))]}'


def types_table() -> str:
    lines = ["| kind | Parquet type |", "|---|---|"]
    for kind in Kind:
        type_ = ColumnType(kind=kind, source="", **DETAILS.get(kind, {}))
        lines.append(f"| {NAMES.get(kind, kind)} | {cell(type_)} |")
        if kind is Kind.DECIMAL:
            lines.append(f"| any other decimal | {cell(UNLIMITED)} |")
    return "\n".join(lines)


def test_the_types_table_matches_the_files() -> None:
    assert f"<!-- types: begin -->\n{types_table()}\n<!-- types: end -->" in README.read_text(encoding="utf-8")
