"""Python functions in queries, evaluated by the real Spark."""

from __future__ import annotations

import pickle
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.evaluating import answers, planned
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page
from cdc_testing.query_functions import FUNCTIONS, registered
from cdc_testing.stored import node
from pyspark.sql import SparkSession

from cdc_core import Changefeed, Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.errors import ContractError, OptionError, PluginLoadError, from_wire
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.queries.table_queries import TableQueries
from cdc_core.spark.query_planning import explain_query, plan_query
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore

COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "name": ColumnType(kind=Kind.STRING, source="text"),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(8,2)", precision=8, scale=2),
    "doc": ColumnType(kind=Kind.JSON, source="jsonb"),
}
SCHEMA = TableSchema(
    name=TableName("db", "public", "t"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in COLUMNS.items()),
    primary_key=("id",),
)


def rows(*names: str | None, **more: Any) -> RowBatch:
    return rows_of(SCHEMA, *({"id": key, "name": name, **more} for key, name in enumerate(names)))


def rows_of(schema: TableSchema, *after: dict[str, Any]) -> RowBatch:
    count = len(after)
    return RowBatch.of(
        schema,
        op=pa.array([Op.UPDATE] * count, pa.uint8()),
        updated=RowBatch.timestamps(pa.array(range(1, count + 1), pa.int64()), pa.array([0] * count, pa.int32())),
        key=pa.array([{"id": row["id"]} for row in after], schema.key_type),
        after=pa.array(after, schema.after_type),
    )


def plan(session: SparkSession, text: str, **functions: str) -> list[QueryPlan]:
    return planned(session, text, SCHEMA, functions=functions, installed=FUNCTIONS)


def found(session: SparkSession, text: str, *batches: RowBatch, **functions: str) -> list[Any]:
    """Return the values `x` of rows that were delivered, and the reasons of the bad rows, in order."""
    return [
        value
        for each in answers(session, plan(session, text, **functions), *batches)
        for value in ([each.reason] if isinstance(each, BadRow) else each.column("after").field("x").to_pylist())
    ]


def test_functions_are_called_in_items_and_conditions_with_any_arguments(session: SparkSession) -> None:
    text = (
        "SELECT twice(whole_number(trim(name))) AS x FROM t WHERE whole_number(name) > 1 AND joined(name, id) != '9-3'"
    )
    functions = {"twice": "(n) -> whole_number(concat(n::string, '0')) + id_free(n)", "id_free": "(n) -> n * 2"}
    assert found(session, text, rows("1", " 2", "30", "9", None), **functions) == [24, 360]


def test_nulls_are_the_functions_own_affair(session: SparkSession) -> None:
    assert found(session, "SELECT joined(name, id) AS x FROM t", rows(None, "a")) == ["?-0", "a-1"]


def test_a_row_that_a_function_fails_for_is_bad_and_no_other_row(session: SparkSession) -> None:
    names = [str(n) for n in range(1000)]
    names[3], names[997] = "x", "yy"
    values = found(session, "SELECT whole_number(name) + 1 AS x FROM t", rows(*names))
    why = "the query cannot compute whole_number(name) + 1: ValueError: invalid literal for int() with base 10: "
    wanted: list[Any] = [n + 1 for n in range(1000)]
    wanted[3], wanted[997] = f"{why}'x'", f"{why}'yy'"
    assert values == wanted


def test_a_failure_harms_nobody_where_the_value_is_not_used(session: SparkSession) -> None:
    text = "SELECT CASE WHEN name RLIKE '^[0-9]+$' THEN whole_number(name) ELSE -1 END AS x FROM t"
    assert found(session, text, rows("7", "x", None)) == [7, -1, -1]


def test_an_argument_that_fails_and_a_condition_that_fails_are_bad_rows(session: SparkSession) -> None:
    values = found(session, "SELECT joined(name, 10 div id) AS x FROM t", rows("a", "b"))
    assert values[0].startswith("the query cannot compute joined(name, 10 div id): an argument cannot be computed: ")
    assert values[1] == "b-10"
    values = found(session, "SELECT id AS x FROM t WHERE whole_number(name) = 5", rows("5", "x", "6"))
    assert values[0] == 0
    assert values[1].startswith("the query cannot compute WHERE whole_number(name) = 5: ValueError: ")
    assert len(values) == 2


def test_large_rows_and_rows_of_other_versions_are_not_shown_to_a_function(session: SparkSession) -> None:
    large = rows("1", "2", doc="x" * 2_000_000)
    assert found(session, "SELECT whole_number(name) AS x FROM t WHERE doc IS NOT NULL", large) == [1, 2]


@pytest.mark.parametrize(
    ("text", "functions", "column", "reason"),
    [
        ("SELECT whole_number(id) AS x FROM t", {}, 8, "argument 1 of whole_number has the type int, but the function"),
        ("SELECT joined(name, price) AS x FROM t", {}, 8, "argument 2 of joined has the type decimal(8,2), but"),
        ("SELECT id FROM t WHERE joined(name) = ''", {}, 24, "joined takes 2 arguments, but got 1"),
        ("SELECT joined(name, day) AS x FROM t", {}, 21, "table public.t has no column 'day'"),
        ("SELECT joined(name, array(id)) AS x FROM t", {}, 8, "argument 2 of joined has the type array<int>, but"),
        (
            "SELECT transform(array(name), n -> whole_number(n)) AS x FROM t",
            {},
            36,
            "whole_number is a Python function",
        ),
        (
            "SELECT transform(array(name), n -> f(n)) AS x FROM t",
            {"f": "(n) -> whole_number(n)"},
            36,
            "whole_number is",
        ),
    ],
)
def test_what_a_call_cannot_be_is_refused_with_its_place(
    session: SparkSession, text: str, functions: dict[str, str], column: int, reason: str
) -> None:
    with pytest.raises(OptionError) as refused:
        plan(session, text, **functions)
    assert str(refused.value).startswith(f"query, line 1, column {column}: {reason}")


def test_a_function_that_cannot_be_loaded_is_refused_before_anything_starts(session: SparkSession) -> None:
    with pytest.raises(PluginLoadError, match=r"'absent' cannot be loaded: module .* has no function 'absent'"):
        plan(session, "SELECT absent(id) AS x FROM t")


@pytest.mark.parametrize(
    ("name", "clause"),
    [("one_too_few", "returned 1 values for 2 rows"), ("other_type", "returned values of the type int32")],
)
def test_a_function_that_breaks_its_contract_is_named(session: SparkSession, name: str, clause: str) -> None:
    with pytest.raises(Exception, match="cdc-error") as failed:
        found(session, f"SELECT {name}(id) AS x FROM t", rows("a", "b"))
    error = from_wire(str(failed.value))
    assert isinstance(error, ContractError)
    assert str(error).startswith(f"function '{name}' {clause}")


def test_a_plan_with_calls_crosses_a_process_border_and_can_be_explained(session: SparkSession) -> None:
    (each,) = plan(session, "SELECT whole_number(joined(name, id)) AS x FROM t")
    assert pickle.loads(pickle.dumps(each)) == each
    explained = explain_query(session, each.query)
    assert explained.splitlines()[0] == "Project [f0_1 AS x]"
    assert explained.splitlines()[2:] == [
        "f0_0 is joined((name), (id)), in Python",
        "f0_1 is whole_number((f0_0)), in Python",
    ]


def test_the_condition_of_a_section_calls_installed_functions(session: SparkSession) -> None:
    queries = TableQueries.of(None, {"t": {"columns": {"include": ["id"]}, "where": "whole_number(name) > 5"}})
    bound = replace(queries, installed=FUNCTIONS).bind(SCHEMA)
    assert bound is not None
    kept, failed = answers(session, [plan_query(session, bound)], rows("7", "x", "5"))
    assert isinstance(kept, RowBatch)
    assert kept.column("after").to_pylist() == [{"id": 0}]
    assert isinstance(failed, BadRow)
    assert "WHERE whole_number(name) > 5: ValueError" in failed.reason


def test_the_query_of_the_page_calls_its_function(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page("write-a-function.md")
    package = page.written(tmp_path)
    monkeypatch.syspath_prepend(str(package))
    session.sparkContext.addPyFile(shutil.make_archive(str(package), "zip", package))  # its workers are other processes
    degrees = ColumnType(kind=Kind.FLOAT, source="double precision", bits=64)
    columns = (*SCHEMA.columns[:1], *(Column(name=name, type=degrees) for name in ("lat", "lon")))
    orders = replace(SCHEMA, name=TableName("db", "public", "orders"), columns=columns)
    function = registered("distance_km", [pa.float64()] * 4, pa.float64(), function="cdc_places.distance:distance_km")
    (query,) = page.blocks("sql")
    batch = rows_of(orders, {"id": 0, "lat": 52.5, "lon": 13.4}, {"id": 1, "lat": None, "lon": 0.0})
    (kept,) = answers(session, planned(session, query, orders, installed=[function]), batch)
    assert isinstance(kept, RowBatch)
    assert kept.column("after").to_pylist() == [{"id": 0, "km": 0.0}]


PAGE = Page("python-api.md")
JOBS = 3
"""The number of the example that needs a store with a node."""


@pytest.mark.slow
def test_the_examples_run(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("orders", "items"):
            connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        connection.execute("INSERT INTO items VALUES (1)")
    (tmp_path / "feeds.toml").write_text(
        "".join(
            f'[changefeed.{name}]\nsource = "${{SHOP}}"\ntables = ["public.{table}"]\nsink = "file://{tmp_path}/out"\n'
            for name, table in (("orders", "orders"), ("items", "items"), ("job", "orders"))
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP", documented(database))
    jobs = store_url(tmp_path / "jobs")
    with closing(ProgressStore(jobs)) as store:
        store.nodes.join(node("one"), lease_s=3600)
    names: dict[str, Any] = {}
    with kept_spark.lent():
        for number, example in enumerate(PAGE.blocks("python")):
            text = example.replace("postgresql://user@host:5432/shop", documented(database))
            text = text.replace("/data/out", f"{tmp_path}/{number}").replace("/var/lib/cdc", f"{tmp_path}/state")
            if number == JOBS:
                text = text.replace("postgresql+psycopg://user@host/jobs", jobs).replace('"orders"', '"job"')
            exec(compile(text, f"example {number}", "exec"), names)
            if number == 0:
                assert names["outcome"].kind == "complete"
                rows = [line for file in tmp_path.glob("0/**/*.ndjson") for line in file.read_text().splitlines()]
                assert len(rows) == 2
                orders = names["orders"]
                names["orders"] = Changefeed(
                    name="again", source=orders.source, tables=orders.tables, sink=orders.sink, options=orders.options
                )
            if number == 1:
                assert [outcome.kind for outcome in names["outcomes"]] == ["stopped", "stopped"]
            if number == JOBS:
                assert [(report.job.name, report.state) for report in names["reports"]] == [("job", "running")]
