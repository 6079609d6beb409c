"""Queries and sections of a run whose table changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core import Changefeed, Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.config.resolve import resolve
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.errors import ConfigError, UnplannedSchemaError
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.bound_query import QueryPlan, output_schema

TEXT = ColumnType(kind=Kind.STRING, source="text")


def users(version: int, *names: str) -> TableSchema:
    columns = tuple(Column(name=name, type=TEXT) for name in names)
    return TableSchema(name=TableName("db", "public", "users"), version=version, columns=columns, primary_key=("id",))


def of_section(section: dict[str, Any]) -> dict[str, Any]:
    return {"tables": ("public.users",), "table": {"public.users": section}}


@pytest.mark.parametrize(
    ("selected", "sentence"),
    [
        (
            {"query": "SELECT id, email FROM users"},
            "query, line 1, column 12: table public.users has no column 'email'",
        ),
        (of_section({"columns": {"exclude": ["email"]}}), "columns.exclude: "),
        (of_section({"columns": {"include": ["id", "email"]}}), "table public.users has no column 'email'"),
        (of_section({"mask": {"email": "redact"}}), "mask.email: "),
    ],
)
def test_a_column_that_is_named_and_then_gone_ends_the_changefeed(selected: dict[str, Any], sentence: str) -> None:
    changefeed = Changefeed(name="c", source="postgresql://u@h/d", sink="file:///out", **selected)
    host: Any = SimpleNamespace(plan=lambda query: QueryPlan(query=query, schema=output_schema(query, {})))
    queries = PlannedQueries(resolve(changefeed, PluginHost.load()), host, acquire=lambda: None)
    before = users(1, "id", "email")
    assert len(queries.plans([before])) == 1
    renamed = users(2, "id", "mail")
    queries.learn(UnplannedSchemaError("unplanned", schema=renamed.to_json()))
    with pytest.raises(ConfigError) as ended:
        queries.plans([before])
    assert sentence in str(ended.value)
