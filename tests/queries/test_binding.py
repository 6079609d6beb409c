"""A query over the columns of a table."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from cdc_core import Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.errors import ConfigError, OptionError
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import BoundQuery
from cdc_core.queries.statement import parse_query

TEXT = ColumnType(kind=Kind.STRING, source="text")


def table(*names: str) -> TableSchema:
    return TableSchema(
        name=TableName("db", "public", "orders"),
        version=1,
        columns=tuple(Column(name=name, type=TEXT) for name in names),
        primary_key=(names[0],),
    )


def bound(text: str, *names: str) -> BoundQuery:
    return bind(parse_query(text), table(*(names or ("id", "status", "Mixed", "a`b"))))


def test_columns_are_passed_on_and_expressions_computed() -> None:
    query = bound("SELECT *, upper(status) AS up, (cdc_prev).status AS old FROM public.orders WHERE id > '3'")
    assert query.raw == ("id", "status", "Mixed", "a`b")
    assert query.typed == ("status", "id")
    assert query.previous == ("status",)
    assert [output.sql for output in query.computed] == ["upper(`v0`.`typed`.`status`)", "`v0`.`previous`.`status`"]
    assert query.condition is not None
    assert query.condition.sql == "`v0`.`typed`.`id` > '3'"


def test_what_travels_beside_a_query_that_passes_nothing_on_is_small() -> None:
    schema = replace(table("picture", "id"), primary_key=("id",))
    query = bind(parse_query("SELECT upper(id) AS up FROM orders"), schema)
    assert query.passing.raw == ("id",)


def test_a_quoted_name_is_that_of_a_column_of_the_table() -> None:
    query = bound('SELECT "crdb_internal_mvcc_timestamp", id FROM orders', "id", "crdb_internal_mvcc_timestamp")
    assert query.raw == ("crdb_internal_mvcc_timestamp", "id")
    assert bound("SELECT crdb_internal_mvcc_timestamp AS at FROM orders").raw == ()


def test_only_columns_of_the_row_before_that_are_used_are_needed() -> None:
    query = bound("SELECT cdc_prev.status AS old FROM orders")
    assert (query.raw, query.typed, query.previous) == ((), (), ("status",))


@pytest.mark.parametrize(
    ("written", "found"),
    [("ID", "id"), ("mixed", "Mixed"), ('"Mixed"', "Mixed"), ("orders.id", "id"), ("public.orders.id", "id")],
)
def test_names_are_found_as_postgresql_finds_them(written: str, found: str) -> None:
    assert bound(f"SELECT {written} FROM public.orders").raw == (found,)


@pytest.mark.parametrize("written", ["cdc_prev", "(CDC_PREV) AS old", "crdb_internal_cdc_prev AS old"])
def test_the_whole_row_before_is_an_item_that_spark_does_not_make(written: str) -> None:
    query = bound(f"SELECT {written} FROM orders", "id", "it's")
    assert (query.previous, query.previous_row) == ((), True)
    assert query.computed[0].sql == "`v0`.`previous_row`"
    assert pickle.loads(pickle.dumps(query)) == query


def test_the_whole_row_before_has_every_column_in_an_expression() -> None:
    query = bound("SELECT cdc_prev IS NULL AS new, to_json(cdc_prev) AS old FROM orders", "id", "it's")
    assert (query.previous, query.previous_row) == (("id", "it's"), False)
    assert query.computed[1].sql.removeprefix("to_json(").removesuffix(")") == (
        "(CASE WHEN `v0`.`previous` IS NOT NULL THEN named_struct('id', `v0`.`previous`.`id`, 'it\\'s',"
        " `v0`.`previous`.`it's`) END)"
    )


def test_a_text_is_written_as_spark_writes_it() -> None:
    query = bound(r"SELECT 'it''s a \\ and \n' AS t FROM orders WHERE status LIKE 'a\%'")
    assert query.computed[0].sql == r"'it\'s a \\\\ and \\n'"
    assert query.condition is not None
    assert query.condition.sql == r"`v0`.`typed`.`status` LIKE 'a\\%'"


def test_of_two_columns_that_differ_in_capitals_each_is_found() -> None:
    assert bound("SELECT ID FROM orders", "id", "ID").raw == ("id",)
    assert bound('SELECT "ID" FROM orders', "id", "ID").raw == ("ID",)


def test_the_commit_timestamp_is_known_in_capitals_too() -> None:
    text = "SELECT CRDB_INTERNAL_MVCC_TIMESTAMP AS at FROM orders"
    assert parse_query(text).refers_to("column", name="crdb_internal_mvcc_timestamp")
    assert "mvcc_wall" in bound(text).computed[0].sql


def test_a_comment_ends_where_its_line_ends() -> None:
    query = bound("SELECT id FROM orders WHERE id = '1' -- one \\\n AND status = '2' /* two */ OR id = '3'")
    assert query.condition is not None
    assert query.condition.sql == "`v0`.`typed`.`id` = '1' AND `v0`.`typed`.`status` = '2' OR `v0`.`typed`.`id` = '3'"


def test_a_quotation_mark_in_a_name_stays_in_it() -> None:
    assert bound('SELECT lower("a`b") AS l FROM orders').computed[0].sql == "lower(`v0`.`typed`.`a``b`)"


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("SELECT statu FROM orders", 8, "table public.orders has no column 'statu'; did you mean 'status'?"),
        ('SELECT "mixed" FROM orders', 8, "table public.orders has no column 'mixed'; did you mean 'Mixed'?"),
        ("SELECT o.id, orders.id FROM orders o", 14, "'orders' is not the table of the query; write o"),
        ("SELECT u.* FROM orders", 8, "'u' is not the table of the query; write orders"),
        ("SELECT id, status AS id FROM orders", 12, "two columns are named id"),
        ("SELECT *, status FROM orders", 11, "two columns are named status"),
        ("SELECT id FROM orders WHERE (cdc_prev).x = 1", 29, "table public.orders has no column 'x'"),
        (
            "SELECT id FROM orders WHERE event_op = 'delete'",
            29,
            "table public.orders has no column 'event_op'; write e",
        ),
        (
            'SELECT id FROM orders WHERE status = "paid"',
            38,
            "table public.orders has no column 'paid'; if it is a string, write 'paid'\n",
        ),
    ],
)
def test_what_the_table_does_not_have_is_named_with_its_place(text: str, column: int, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        bound(text)
    first, _, caret = str(refused.value).splitlines()
    assert f"{first}\n".startswith(f"query, line 1, column {column}: {reason}")
    assert caret.index("^") == column + 1


def test_a_table_with_a_column_named_cdc_prev_has_no_row_before() -> None:
    assert bound("SELECT id FROM orders", "id", "cdc_prev").raw == ("id",)
    with pytest.raises(ConfigError, match="has its own column named cdc_prev"):
        bound("SELECT cdc_prev.id FROM orders", "id", "cdc_prev")


def test_a_bound_query_crosses_a_process_border() -> None:
    query = bound("SELECT *, upper(status) AS up FROM orders WHERE event_op() = 'delete'")
    assert pickle.loads(pickle.dumps(query)) == query


def test_an_item_named_cdc_topic_is_the_topic_and_no_column() -> None:
    query = bound("SELECT id, concat('x-', id) AS cdc_topic FROM orders")
    assert [output.name for output in query.outputs] == ["id"]
    assert query.topic is not None
    assert query.topic.text == "concat('x-', id)"
    assert pickle.loads(pickle.dumps(query)) == query
    assert parse_query("SELECT id, 'x' AS cdc_topic FROM orders").routes
    assert not parse_query("SELECT * FROM orders").routes


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 'x' AS cdc_topic FROM orders", "cdc_topic is not part of the message; select other columns as well"),
        ("SELECT id, 'x' AS cdc_topic, 'y' AS cdc_topic FROM orders", "two expressions are named cdc_topic"),
    ],
)
def test_a_query_gives_one_topic_and_something_to_deliver(query: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        bound(query)


@pytest.mark.parametrize("previous", ["(cdc_prev)", "cdc_prev", "crdb_internal_cdc_prev"])
def test_the_row_before_has_no_time_of_its_own(previous: str) -> None:
    with pytest.raises(OptionError, match="cdc_prev has no crdb_internal_mvcc_timestamp: sources do not say when"):
        bound(f"SELECT {previous}.CRDB_internal_mvcc_timestamp AS old FROM orders")
