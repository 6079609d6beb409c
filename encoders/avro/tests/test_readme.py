"""The tables of the documentation match the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import envelope_schema
from cdc_encoder_avro.types import branches

from cdc_core import Column, ColumnType, Envelope, Kind, TableName, TableSchema

ROOT = Path(__file__).parents[3]
README = ROOT / "encoders" / "avro" / "README.md"
ARRAY_OF_INT = {"element": ColumnType(kind=Kind.INT, source="")}
DETAILS: dict[Kind, dict[str, Any]] = {Kind.ENUM: {"labels": ("a",)}, Kind.ARRAY: ARRAY_OF_INT}
CHOICES = {Kind.ENUM: {"avro_enum": ("string", "enum")}, Kind.ARRAY: {"avro_arrays": ("typed", "json")}}


def shown(type_: ColumnType) -> str:
    """Return the cell of *type_*: its branches, for each choice of an option."""
    ((name, values),) = CHOICES.get(type_.kind, {None: (None,)}).items()
    cells = []
    for value in values:
        options = AvroOptions(**({} if name is None else {name: value}))
        cell = " or ".join(map(branch_text, branches(type_, options, enum_name="x")))
        cells.append(cell if value is None or value == values[0] else f'with `{name} = "{value}"` {cell}')
    return "; ".join(cells)


def branch_text(branch: Any) -> str:
    if isinstance(branch, str):
        return f"`{branch}`"
    if branch["type"] == "array":
        return f"`array` of {' or '.join(map(branch_text, branch['items']))}"
    if branch["type"] == "enum":
        return "`enum`"
    return f"`{branch['type']}`, logical type `{branch['logicalType']}`"


def types_table() -> str:
    samples = {str(kind): ColumnType(kind=kind, source="", **DETAILS.get(kind, {})) for kind in Kind}
    declared = ColumnType(kind=Kind.DECIMAL, source="", precision=10, scale=2)
    rows = [f"| {name} | {shown(type_)} |" for name, type_ in samples.items()]
    rows.insert(list(Kind).index(Kind.DECIMAL), f"| decimal with a precision | {shown(declared)} |")
    return "\n".join(["| kind | Avro type besides null |", "|---|---|", *rows])


def test_the_types_table_matches_the_schemas() -> None:
    assert f"<!-- types: begin -->\n{types_table()}\n<!-- types: end -->" in README.read_text(encoding="utf-8")


def test_the_schema_on_the_page_is_the_one_that_is_registered() -> None:
    columns = {
        "id": ColumnType(kind=Kind.INT, source="bigint", bits=64),
        "total": ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2),
    }
    schema = TableSchema(
        name=TableName("shop", "public", "orders"),
        version=1,
        columns=tuple(Column(name=name, type=type_) for name, type_ in columns.items()),
        primary_key=("id",),
    )
    options, envelope = AvroOptions(avro_schema_prefix="shop."), Envelope(updated=True)
    page = (ROOT / "docs" / "avro.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'```json\n(\{"type": "record".*?)```', page, re.DOTALL)
    assert json.loads(shown) == envelope_schema(schema, "orders", envelope=envelope, options=options, resolved=True)
