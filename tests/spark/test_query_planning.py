"""Queries planned by the real Spark: what it refuses, and what functions become."""

from __future__ import annotations

import pickle
import re
from decimal import Decimal
from typing import Any

import pytest
from cdc_testing.evaluating import answers, planned
from cdc_testing.queried_orders import COLUMNS, LOCAL, SCHEMA, one, plan, rows, table
from pyspark.sql import DataFrame, SparkSession

from cdc_core import RowBatch, TableSchema
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.errors import OptionError, UnplannedSchemaError
from cdc_core.queries.builtin_functions import BUILTIN_FUNCTIONS
from cdc_core.queries.functions import refused_name
from cdc_core.spark import query_planning
from cdc_core.spark.columns import columns_schema, packed_columns
from cdc_core.spark.private_api import Py4JJavaError


def test_a_version_that_is_not_planned_is_named(session: SparkSession) -> None:
    (known,) = plan(session, "SELECT id FROM orders")
    with pytest.raises(UnplannedSchemaError, match=r"public\.orders") as unplanned:
        list(
            packed_columns(
                rows([{}], schema=table(2, note=COLUMNS["doc"])),
                queries=[known.query],
                schema=columns_schema([known.query]),
                deletes_as_rows=True,
            )
        )
    assert TableSchema.from_json(unplanned.value.schema) == table(2, note=COLUMNS["doc"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT foo(id) AS x FROM orders", "foo(id): there is no function 'foo'"),
        ("SELECT name + day AS x FROM orders", "name + day: Cannot resolve"),
        (
            "SELECT explode(array(id)) AS x FROM orders",
            "a query cannot use explode(array(id)): it returns several rows",
        ),
        ("SELECT mode(id) AS x FROM orders", "a query cannot call mode: it combines many rows"),
        ("SELECT any_value(id) AS x FROM orders", "a query cannot "),
        ("SELECT null AS x FROM orders", "null is null for every row and has no type"),
        ("SELECT at - at AS x FROM orders", "at - at has the type interval day to second"),
        ("SELECT id FROM orders WHERE id + 1", "the condition has the type int, not boolean"),
        ("SELECT id FROM orders WHERE 1 = 2", "the condition does not match any rows"),
        ("SELECT id FROM orders WHERE id = 1 AND false", "the condition does not match any rows"),
        ("SELECT day < 'today' AS x FROM orders", "day < 'today': 'today' reads the clock"),
        ("SELECT id FROM orders WHERE at > ' Now UTC'", "at > ' Now UTC': 'now' reads the clock"),
        ("SELECT to_date('yesterday') AS x FROM orders", "to_date('yesterday'): 'yesterday' reads the clock"),
        ("SELECT day IN (concat('to', 'morrow')) AS x FROM orders", "day IN (concat('to', 'morrow')): 'tomorrow'"),
        ("SELECT day BETWEEN 'epoch' AND 'today' AS x FROM orders", "day BETWEEN 'epoch' AND 'today': 'today' reads"),
        ("SELECT id FROM orders WHERE NULL", "the condition does not match any rows"),
        ("SELECT uper(name) AS x FROM orders", "uper(name): there is no function 'uper'; did you mean 'upper'?"),
        ("SELECT strpos(name, 'a') AS x FROM orders", "strpos(name, 'a'): there is no function 'strpos'; write instr("),
        ("SELECT id::int8 AS x FROM orders", "id::int8: Spark has no type int8; write bigint"),
        ("SELECT id::varchar AS x FROM orders", "id::varchar: Spark has no type varchar; write string"),
        ("SELECT tags[0] AS x FROM orders", 'tags[0]: Can\'t extract a value from "tags". Need a complex type'),
        ("SELECT size(tags) AS x FROM orders", "size(tags): Cannot resolve"),
        ("SELECT doc.a AS x FROM orders", "column doc is JSON text in expressions; write get_json_object(doc, "),
        ("SELECT doc->'x' AS x FROM orders", "doc->'x': Syntax error at or near '->'. For a member of JSON, write"),
        ("SELECT at AT TIME ZONE 'Asia/Tokyo' AS x FROM orders", "at AT TIME ZONE 'Asia/Tokyo': Syntax error at or n"),
        ("SELECT id FROM orders WHERE price > 'abc'", "price > 'abc' fails for every row: The value 'abc' of the type"),
        ("SELECT id FROM orders WHERE at > '2024-13-01'", "at > '2024-13-01' fails for every row: The value '2024-13"),
        ("SELECT at > '12:30' AS x FROM orders", "at > '12:30': '12:30' is a time of day, to which Spark would add"),
        ("SELECT hour + INTERVAL '1' HOUR AS x FROM orders", "hour + INTERVAL '1' HOUR: column hour is a time of day"),
        ("SELECT regexp_matches(name, 'a') AS x FROM orders", "regexp_matches(name, 'a'): there is no function 'regex"),
        (
            'SELECT name COLLATE "C" AS x FROM orders',
            'name COLLATE "C": The value C does not represent a correct collat',
        ),
        ("SELECT to_char(day, 'YYYY-MM-DD') AS x FROM orders", "to_char(day, 'YYYY-MM-DD'): Spark does not know this"),
        ("SELECT id FROM orders WHERE date_format(at, 'YYYY') > '1'", "date_format(at, 'YYYY') > '1': Spark does not"),
        ("SELECT id, name AS n, name LIKE 'a\\' AS x FROM orders", "name LIKE 'a\\': The format is invalid"),
        (
            "SELECT id FROM orders WHERE name RLIKE '(a'",
            "name RLIKE '(a': '(a' is not a regular expression: Unclosed gr",
        ),
        ("SELECT regexp_count(name, '[') AS x FROM orders", "regexp_count(name, '['): '[' is not a regular expression"),
        ("SELECT split(name, '*') AS x FROM orders", "split(name, '*'): '*' is not a regular expression: Dangling"),
        ("SELECT to_utc_timestamp(at, 'Mars') AS x FROM orders", "to_utc_timestamp(at, 'Mars'): there is no time zone"),
        ("SELECT convert_timezone('UTC', 'X', local) AS x FROM orders", "convert_timezone('UTC', 'X', local): there"),
        (
            "SELECT lpad(name, 2000000000) AS x FROM orders",
            "lpad(name, 2000000000): a value of length 2,000,000,000 is",
        ),
        ("SELECT repeat('x', 2 * 1000000000) AS x FROM orders", "repeat('x', 2 * 1000000000): a value of length 2,000"),
        ("SELECT to_timestamp(hour) AS x FROM orders", "to_timestamp(hour): column hour is a time of day"),
        ("SELECT date_trunc('hours', at) AS x FROM orders", "date_trunc('hours', at): there is no unit 'hours'; write"),
        ("SELECT id FROM orders WHERE trunc(day, 'DD') > day", "trunc(day, 'DD') > day: there is no unit 'dd'; write"),
        ("SELECT encode(raw, 'hex') AS x FROM orders", "encode(raw, 'hex'): there is no character set 'hex'; for "),
        ("SELECT format('%s', name) AS x FROM orders", "format('%s', name): there is no function 'format'; write form"),
        ("SELECT get_json_object(doc, 'a') AS x FROM orders", "get_json_object(doc, 'a'): 'a' is not a path; write '$"),
    ],
)
def test_what_spark_refuses_is_said_in_a_sentence_with_its_place(
    session: SparkSession, capfd: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    with pytest.raises(OptionError) as refused:
        plan(session, text, table(local=LOCAL))
    first, shown, _ = str(refused.value).splitlines()
    assert first.startswith("query, line 1, column ")
    assert first.partition(": ")[2].startswith(reason)
    assert shown.strip() == text
    assert "typed" not in first
    assert capfd.readouterr().err == ""


def test_what_spark_does_not_refuse_is_left_to_the_run(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm: Any = session._jvm

    def fails(_: DataFrame) -> None:
        jvm.java.util.Optional.empty().get()

    with pytest.raises(Py4JJavaError, match="NoSuchElementException"):
        fails(session.range(1))
    monkeypatch.setattr(query_planning, "generate_code", fails)
    assert plan(session, "SELECT id FROM orders WHERE name LIKE 'a'")


def test_what_is_written_in_place_of_postgresql_is_named(session: SparkSession) -> None:
    told = {
        "size(tags)": "from_json(tags, 'array<string>')",
        "(doc).member": "get_json_object(doc, '$.member')",
        "at AT TIME ZONE 'Asia/Tokyo'": "convert_timezone('UTC', 'Europe/Berlin', column)",
        "(at) at time zone 'Asia/Tokyo'": "convert_timezone('Europe/Berlin', 'UTC', column)::timestamp",
        "local AT TIME ZONE 'Asia/Tokyo'": "convert_timezone('Europe/Berlin', 'UTC', column)::timestamp",
        "ARRAY [1, 2]": "array(…)",
        "price::double precision": "DOUBLE",
        "name::character varying(2)": "STRING",
        "name SIMILAR  TO 'a'": "RLIKE",
        "name ~* 'a'": "RLIKE, and (?i) before a pattern that ignores case",
        "transform(array(1), t -> doc->>'x')": "get_json_object(column, '$.member')",
        "doc #> '{x}'": "get_json_object(column, '$.member')",
        "extract(epoch FROM at)": "unix_micros(column) / 1000000",
    }
    for expression, instead in told.items():
        with pytest.raises(OptionError, match=re.escape(f"write {instead}.")):
            plan(session, f"SELECT {expression} AS x FROM orders", table(local=LOCAL))
    for expression in ("transform(from_json(tags, 'array<string>'), t -> t::inet)", "concat('a -> b', name::inet)"):
        with pytest.raises(OptionError, match=r"Unsupported data type \"INET\"") as refused:
            plan(session, f"SELECT {expression} AS x FROM orders")
        assert "For a member of JSON" not in str(refused.value)
    text = "SELECT size(from_json(tags, 'array<string>')) AS n, get_json_object(doc, '$.m') AS m,"
    text += " convert_timezone('UTC', 'Asia/Tokyo', at) AS t, to_timestamp('2000-01-01 ' || hour) AS h FROM orders"
    given = rows([{"tags": '["a","b"]', "doc": '{"m":1}', "at": 1_700_000_000_000_000, "hour": 45_000_000_000}])
    (row,) = one(session, text, given).column("after").to_pylist()
    assert (row["n"], row["m"], row["t"].isoformat()) == (2, "1", "2023-11-15T07:13:20")
    assert row["h"].isoformat() == "2000-01-01T12:30:00+00:00"


def test_what_a_time_of_day_shows_without_a_date_does_not_read_the_clock(session: SparkSession) -> None:
    text = "SELECT hour(hour) AS h, minute(to_timestamp(hour)) AS m, EXTRACT(SECOND FROM hour) AS s,"
    text += " second('12:30:15') AS c, date_format(hour, 'HH:mm') AS f FROM orders WHERE hour(hour) >= 8"
    (row,) = one(session, text, rows([{"hour": 45_296_000_000}])).column("after").to_pylist()
    assert row == {"h": 12, "m": 34, "s": "56.000000", "c": 15, "f": "12:34"}
    for expression in (
        "hour('now')",
        "hour('12:30 Europe/Berlin')",
        "date_format(hour, 'dd HH')",
        "hour(hour + INTERVAL '1' HOUR)",
        "hour::timestamp",
    ):
        with pytest.raises(OptionError, match=r"reads the clock|is a time of day"):
            plan(session, f"SELECT {expression} AS x FROM orders")


def test_every_function_of_spark_keeps_its_name(session: SparkSession) -> None:
    known = {row[0] for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in known if re.fullmatch(r"\w+", name)} == BUILTIN_FUNCTIONS
    assert all(refused_name(name) for name in BUILTIN_FUNCTIONS)


def test_a_function_is_expanded_and_its_variables_do_not_meet_those_of_an_argument(session: SparkSession) -> None:
    functions = {
        "sums": "(list, more) -> transform(list, x -> x + more)",
        "half": "(n) -> n / 2 /* of\nit */",
        "halves": "(a, b) -> half(a) + half(b)",
    }
    text = "SELECT transform(array(1, 2), x -> sums(array(10, 20), x)) AS s, halves(price, 3.0) AS h FROM orders"
    plans = planned(session, text, SCHEMA, functions=functions)
    (found,) = answers(session, plans, rows([{"price": "5.00"}]))
    assert isinstance(found, RowBatch)
    (row,) = found.column("after").to_pylist()
    assert (row["s"], Decimal(row["h"])) == ("[[11,21],[12,22]]", Decimal(4))


def test_an_expression_of_a_function_that_fails_is_named_by_its_call(session: SparkSession) -> None:
    functions = {"whole": "(text) -> text::int"}
    plans = planned(session, "SELECT whole(name) AS n FROM orders", SCHEMA, functions=functions)
    (bad,) = answers(session, plans, rows([{"Name": "x"}]))
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("the query cannot compute whole(name): ")
    with pytest.raises(OptionError, match=r"wohle\(name\): there is no function 'wohle'; did you mean 'whole'\?"):
        planned(session, "SELECT wohle(name) AS n FROM orders", SCHEMA, functions=functions)
    with pytest.raises(OptionError, match=r"whole\(array\(day\)\): Cannot resolve"):
        planned(session, "SELECT whole(array(day)) AS n FROM orders", SCHEMA, functions=functions)


def test_a_plan_crosses_a_process_border(session: SparkSession) -> None:
    for each in plan(session, "SELECT *, price * 2 AS twice, cdc_prev FROM orders WHERE id > 3"):
        assert pickle.loads(pickle.dumps(each)) == each


def test_a_topic_that_is_no_text_is_refused_and_one_that_fails_makes_a_bad_row(session: SparkSession) -> None:
    with pytest.raises(OptionError, match="cdc_topic must be text, but id has the type integer; cast it to STRING"):
        plan(session, "SELECT id, id AS cdc_topic FROM orders")
    failing = 'SELECT id, CAST(CAST("Name" AS INT) AS STRING) AS cdc_topic FROM orders'
    good, bad = answers(session, plan(session, failing), rows([{"Name": "5"}, {"Name": "x"}]))
    assert isinstance(good, RowBatch)
    assert good.topic == "5"
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("the query cannot compute CAST(CAST(")
