"""Why an expression can fail, as far as its text and the types of its columns tell."""

from __future__ import annotations

import pytest

from cdc_core import Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.queries.dialect import possible_causes

SCHEMA = TableSchema(
    name=TableName("db", "public", "orders"),
    version=1,
    columns=tuple(
        Column(name=name, type=ColumnType(kind=kind, source="x"))
        for name, kind in {"id": Kind.INT, "Total": Kind.DECIMAL, "note": Kind.STRING, "day": Kind.DATE}.items()
    ),
    primary_key=("id",),
)


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        ("total / id", "a division by zero"),
        ("(o.total % (id))", "a division by zero"),
        ("CAST(note AS int)", "a cast that failed"),
        ("day::timestamp", "a cast that failed"),
        ("id * 2 + 1", "a number out of range"),
        ("note / id", None),
        ("id / '3x'", None),
        ("day - 1", None),
        ("id / 2 + 1", None),
        ("CAST(id / 0 AS int)", None),
        ("upper(note)", None),
        ("WHERE id / 0 > 1", None),
        ("cdc_prev.total / id", "a division by zero"),
    ],
)
def test_a_cause_is_named_where_no_other_is_possible(expression: str, cause: str | None) -> None:
    every = "a division by zero, a cast that failed, a number out of range, or an infinite date or time"
    assert possible_causes(expression, SCHEMA) == (cause or every)
