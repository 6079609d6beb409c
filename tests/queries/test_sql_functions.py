"""Functions that a changefeed defines: what they may be, and what becomes of a call."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from cdc_core import Changefeed, Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.config.identity import require_same_source
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.errors import ConfigError, OptionError
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import BoundQuery
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query

NUMBER = ColumnType(kind=Kind.INT, source="integer", bits=32)
SCHEMA = TableSchema(
    name=TableName("db", "public", "t"),
    version=1,
    columns=tuple(Column(name=name, type=NUMBER) for name in ("id", "a", "b", "c")),
    primary_key=("id",),
)


def bound(text: str, **functions: str) -> BoundQuery:
    return bind(parse_query(text, tuple(functions.items())), SCHEMA)


def sql(expression: str, **functions: str) -> str:
    (output,) = bound(f"SELECT {expression} AS x FROM t", **functions).outputs
    return output.sql.replace("`v0`.`typed`.", "")


@pytest.mark.parametrize(
    ("expression", "functions", "wanted"),
    [
        ("net(a, 2)", {"net": "(x, rate) -> x * (1 - rate)"}, "((`a`) * (1 - (2)))"),
        ("NET(a, b) + 1", {"net": "(x, a) -> a + x"}, "((`b`) + (`a`)) + 1"),
        ("f(f(a))", {"f": "(x) -> x + x"}, "((((`a`) + (`a`))) + (((`a`) + (`a`))))"),
        ("g(a)", {"g": "(x) -> f(x, 'y')", "f": "(x, y) -> x || y"}, "((((`a`)) || ('y')))"),
        ("f()", {"f": "() -> 'it''s'"}, "('it\\'s')"),
        ("f(a /* , */ , -- )\n b)", {"f": "(x, y) -> x -- of it\n = y"}, "((`a`) = (`b`))"),
        ("f(from_json('', 'c int'))", {"f": '("S") -> "S".c'}, "((from_json('', 'c int')).c)"),
        ("event(a)", {"event": "(x) -> x || statement_timestamp()"}, "((`a`) || timestamp_micros(`wall` div 1000))"),
        ('"f"(a) + s.f(b)', {"f": "(x) -> x"}, "((`a`)) + s.f(`b`)"),
        ("f(a, lower('f(b)'))", {"f": "(x, y) -> x = y"}, "((`a`) = (lower('f(b)')))"),
    ],
)
def test_a_call_is_the_expression_with_the_arguments(expression: str, functions: dict[str, str], wanted: str) -> None:
    assert sql(expression, **functions) == wanted


def test_columns_of_arguments_are_read_even_if_the_function_does_not_use_them() -> None:
    query = bound("SELECT f(a, cdc_prev.b) AS x FROM t WHERE f(c, 1) > 2", f="(x, y) -> x")
    assert (query.typed, query.previous) == (("a", "c"), ("b",))
    assert parse_query("SELECT f(cdc_prev.b) AS x FROM t", (("f", "(x) -> 1"),)).refers_to("previous column")
    with pytest.raises(OptionError, match=r"column 13: table public\.t has no column 'd'"):
        bound("SELECT f(a, d) AS x FROM t", f="(x, y) -> x")


def test_a_condition_that_calls_a_function_is_left_to_spark() -> None:
    query = parse_query("SELECT id FROM t WHERE a > 1 AND positive_number(b)", (("positive_number", "(x) -> x > 0"),))
    assert [each.column for each in restriction_of(query, SCHEMA).comparisons] == ["a"]


def test_the_order_of_definitions_does_not_matter() -> None:
    functions = {"one": "(x) -> two(x) + 1", "two": "(x) -> three(x) * 2", "three": "(x) -> x - 3"}
    orders = [functions, dict(reversed(functions.items())), json.loads(json.dumps(functions, sort_keys=True))]
    assert len({sql("one(a)", **order) for order in orders}) == 1


REFUSED = {
    "x -> x": (1, "the parameters are not in parentheses; write it as (parameter, …) -> expression"),
    "x + 1": (1, "-> is missing"),
    "(x) ->": (7, "the expression after -> is missing"),
    "(x,) -> x": (4, "the name of a parameter is missing"),
    "(x y) -> x": (4, "this is not the name of a parameter"),
    "(x, x) -> x": (5, "two parameters are named x"),
    "(cdc_prev) -> 1": (2, "cdc_prev is the row before the change"),
    "(x) -> y": (8, "'y' is not a parameter of the function; known: x"),
    "(amount) -> amuont + 1": (13, "'amuont' is not a parameter of the function; did you mean 'amount'?"),
    "(x) -> cdc_prev.a": (8, "a function sees the row before the change only through its parameters"),
    "(x) -> x AS y": (8, "an expression in a function has no name"),
    "(x) -> x; x": (9, "text follows the end of the expression"),
    "(x) -> (x": (8, "'(' is not closed"),
    "(x) -> 'x": (8, "a quotation mark is not closed"),
    "(x) -> x FROM t": (8, "this is not an expression of Spark SQL"),
    "(x) -> (SELECT 1)": (9, "a query cannot have a subquery"),
    "(x) -> max(x)": (8, "a query cannot call max: it combines many rows"),
    "(x) -> x + rand()": (12, "a query cannot call rand: it returns a different value each time"),
    "(x) -> now()": (8, "a query cannot call now: it reads the clock"),
    "(x) -> DATE 'today'": (8, "'today' reads the clock"),
    "(x) -> f(x)": (8, "f calls f, in an endless recursion"),
    "(x) -> g(h(x))": (8, "f calls g, which calls f, in an endless recursion"),
    "(x) -> h(x, x)": (8, "h takes 1 argument, but got 2"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_named_with_its_place_in_the_function(text: str) -> None:
    column, reason = REFUSED[text]
    with pytest.raises(OptionError) as refused:
        parse_query("SELECT f(a) AS x FROM t", (("g", "(x) -> f(x)"), ("h", "(x) -> x"), ("f", text)))
    first, line, caret = str(refused.value).splitlines()
    owner, place = ("g", column) if "g, which" in reason else ("f", column)
    assert first.startswith(f"function {owner}, line 1, column {place}: {reason}")
    assert line == ("  (x) -> f(x)" if owner == "g" else f"  {text}")
    assert caret == f"  {' ' * (column - 1)}^"


def test_a_call_with_another_number_of_arguments_is_refused_in_the_query() -> None:
    with pytest.raises(OptionError, match=r"query, line 1, column 8: f takes 2 arguments, but got 1"):
        bound("SELECT f(a) AS x FROM t", f="(x, y) -> x")


@pytest.mark.parametrize(
    "name", ["lower", "collate", "regr_r2", "case", "select", "event_op", "now", "quantile", "cdc_prev", "F", "a b", ""]
)
def test_a_function_cannot_have_a_name_that_means_something_else(name: str) -> None:
    with pytest.raises(OptionError, match=f"function '{name}' cannot have this name: "):
        bound("SELECT a FROM t", **{name: "(x) -> x"})


def test_functions_that_would_grow_without_bounds_are_refused() -> None:
    functions = {"f0": "(x) -> x + x"} | {f"f{n}": f"(x) -> f{n - 1}(f{n - 1}(x))" for n in range(1, 20)}
    with pytest.raises(OptionError, match=r"column 8: f\d+ is longer than 200,000 characters when it is expanded"):
        bound("SELECT f19(a) AS x FROM t", **functions)


def feed(tmp_path: Path, text: str, **environ: str) -> Changefeed:
    file = tmp_path / "feeds.toml"
    file.write_text(f"[changefeed.c]\nsource = 'postgresql://u@h/d'\nsink = 'file:///data/out'\n{text}")
    return read_changefeed(file, environ=environ)


def test_functions_survive_the_store_and_cannot_change_for_a_changefeed_that_has_begun(tmp_path: Path) -> None:
    text = "query = 'SELECT f(a) AS x FROM t'\n[changefeed.c.functions]\nf = '(x) -> g(x)'\ng = '(x) -> x + 1'"
    host = PluginHost.load()
    first = resolve(feed(tmp_path, text), host)
    stored = json.loads(json.dumps(first.definition(), sort_keys=True))
    assert stored["written"]["functions"] == stored["functions"] == {"f": "(x) -> g(x)", "g": "(x) -> x + 1"}
    again = pickle.loads(pickle.dumps(first))
    assert again.queries() == first.queries()
    require_same_source("c", stored, again.definition(), changes_tables=True)
    other = resolve(feed(tmp_path, text.replace("+ 1", "+ 2")), host)
    with pytest.raises(ConfigError, match="was started with a different function g, which cannot be changed"):
        require_same_source("c", stored, other.definition(), changes_tables=True)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("query", "query = \"SELECT '${HUSH}' AS x FROM t\""),
        ("functions", "query = 'SELECT f(a) AS x FROM t'\n[changefeed.c.functions]\nf = \"(x) -> '${HUSH}'\""),
    ],
)
def test_a_reference_in_a_query_or_a_function_is_refused_as_it_would_be_shown(
    tmp_path: Path, key: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=rf"changefeed 'c': {key} cannot have references") as refused:
        feed(tmp_path, text, HUSH="secret-value")
    assert "secret-value" not in str(refused.value)
    written = feed(tmp_path, text.replace("${", "$${"), HUSH="secret-value")
    assert "${HUSH}" in str(written.query) + str(written.functions)


def test_functions_without_a_query_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="changefeed 'c' has functions but no query that could call them"):
        feed(tmp_path, "tables = ['t']\n[changefeed.c.functions]\nf = '(x) -> x'")
