"""Which part of a condition a source may evaluate, and which columns a query needs of a scan."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from cdc_core import Column, ColumnType, Comparison, Kind, TableName, TableSchema
from cdc_core.queries.comparisons import parts_of_condition
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query

TYPES = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(8,2)", precision=8, scale=2),
    "amount": ColumnType(kind=Kind.DECIMAL, source="numeric"),
    "Name": ColumnType(kind=Kind.STRING, source="text"),
    "at": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    "day": ColumnType(kind=Kind.DATE, source="date"),
    "paid": ColumnType(kind=Kind.BOOL, source="boolean"),
    "real": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "pair": ColumnType(kind=Kind.COMPOSITE, source="pair"),
}
SCHEMA = TableSchema(
    name=TableName("db", "public", "orders"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in TYPES.items()),
    primary_key=("id",),
)


def comparisons(condition: str) -> tuple[Comparison, ...]:
    query = parse_query(f"SELECT * FROM orders o WHERE {condition}")
    return restriction_of(query, SCHEMA).comparisons


@pytest.mark.parametrize(
    ("condition", "column", "operator", "values"),
    [
        ("id = 5", "id", "=", (5,)),
        ("-5 < ID", "id", ">", (-5,)),
        ("(o.id) <= (5)", "id", "<=", (5,)),
        ("id IN (1, -2)", "id", "in", (1, -2)),
        ("\"Name\" <> 'it''s'", "Name", "<>", ("it's",)),
        ("name = 'a'", "Name", "=", ("a",)),
        ("paid", "paid", "=", (True,)),
        ("NOT paid", "paid", "=", (False,)),
        ("paid = false", "paid", "=", (False,)),
        ("real IS NULL", "real", "is null", ()),
        ("day IS NOT NULL", "day", "is not null", ()),
        ("day >= DATE '2024-02-29'", "day", ">=", (date(2024, 2, 29),)),
        ("at < TIMESTAMP '2024-01-01 10:00:00.5'", "at", "<", (datetime(2024, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC),)),
        ("price > 10 -- a comment\n", "price", ">", (10,)),
    ],
)
def test_comparisons_of_a_column_with_constants_are_for_the_source(
    condition: str, column: str, operator: Any, values: tuple[Any, ...]
) -> None:
    assert comparisons(condition) == (Comparison(column=column, operator=operator, values=values),)


@pytest.mark.parametrize(
    "condition",
    [
        *("id + 1 = 5", "id = 5 OR id = 6", "NOT id = 5", "id = '5'", "id = 1.5", "id > 9223372036854775808"),
        *("id IN (1, NULL)", "id = NULL", "name > 'a'", "name LIKE 'a%'", "name = 5", "amount > 10"),
        *("amount IS NULL", "price IS NULL", "real > 1", "pair IS NULL", "day >= '2024-01-01'"),
        *("day >= DATE '2024-1-1'", "day >= DATE '2023-02-29'", "day >= TIMESTAMP '2024-01-01 00:00:00'"),
        *("at < TIMESTAMP '2024-01-01 10:00:00+02'", "id IS NOT DISTINCT FROM 5", "cdc_prev.id = 5"),
        *("cdc_prev IS NULL", "event_op() = 'insert'", "crdb_internal_mvcc_timestamp > 5", "id = id"),
    ],
)
def test_what_sources_could_evaluate_otherwise_is_for_spark(condition: str) -> None:
    assert comparisons(condition) == ()


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("id = 5 AND (paid AND name = 'a')", ["id", "paid", "Name"]),
        ("id BETWEEN 1 AND 5 AND paid", ["id", "id", "paid"]),
        ("100 / id > 5 AND paid", []),
        ("id = 5 AND 100 / id > 5 AND paid", ["id"]),
        ("price > 5 AND paid", ["price"]),
    ],
)
def test_nothing_is_left_out_for_which_an_earlier_part_of_the_condition_fails(
    condition: str, columns: list[str]
) -> None:
    assert [comparison.column for comparison in comparisons(condition)] == columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT * FROM orders", None),
        ("SELECT paid FROM orders", {"id", "paid"}),
        ("SELECT upper(name) AS n FROM orders WHERE price > 5", {"id", "Name", "price"}),
        ("SELECT paid, cdc_prev.day AS d FROM orders", {"id", "paid"}),
        ("SELECT id, nothing FROM orders", None),
    ],
)
def test_the_columns_are_those_that_the_query_uses_and_the_key(text: str, columns: set[str] | None) -> None:
    assert restriction_of(parse_query(text), SCHEMA).columns == columns


def test_a_source_is_told_nothing_from_the_event_on() -> None:
    for condition in ("event_op() = 'insert' AND id = 5", "id = 5 AND event_op() = 'insert'"):
        found = restriction_of(parse_query(f"SELECT * FROM orders WHERE {condition}"), SCHEMA)
        assert [each.column for each in found.comparisons] == (["id"] if condition.startswith("id") else [])
        assert found.keep_unknown


def test_the_parts_of_a_condition_can_be_shown() -> None:
    query = parse_query("SELECT * FROM orders WHERE (id BETWEEN 1 AND 5 AND paid /* so */) AND 100 / id > 5 OR paid")
    assert parts_of_condition(query) == ("(id BETWEEN 1 AND 5 AND paid) AND 100 / id > 5 OR paid",)
    query = parse_query("SELECT * FROM orders WHERE (id BETWEEN 1 AND 5 AND paid /* so */) AND upper(\"Name\") = 'A'")
    assert parts_of_condition(query) == ("id >= 1", "id <= 5", "paid", "UPPER(`Name`) = 'A'")


def test_comparisons_of_the_key_are_for_changes_too() -> None:
    query = parse_query("SELECT * FROM orders WHERE paid AND id > 5 AND lower(\"Name\") = 'a' AND id < 9")
    assert restriction_of(query, SCHEMA).of_changes == (Comparison(column="id", operator=">", values=(5,)),)
