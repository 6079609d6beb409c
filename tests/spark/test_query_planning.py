"""Queries planned and evaluated by the real Spark, over rows of every type."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.evaluating import answers, planned
from pyspark.sql import SparkSession

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, Timestamp, unavailable_column
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.errors import OptionError, UnplannedSchemaError
from cdc_core.queries.bound_query import QueryPlan
from cdc_core.queries.builtin_functions import BUILTIN_FUNCTIONS
from cdc_core.queries.functions import refused_name
from cdc_core.queries.selection import Selection
from cdc_core.spark.columns import ROW_BYTES, columns_schema, packed_columns
from cdc_core.spark.query_planning import plan_query

COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric(8,2)", precision=8, scale=2),
    "amount": ColumnType(kind=Kind.DECIMAL, source="numeric"),
    "Name": ColumnType(kind=Kind.STRING, source="text"),
    "at": ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamp with time zone"),
    "day": ColumnType(kind=Kind.DATE, source="date"),
    "hour": ColumnType(kind=Kind.TIME, source="time"),
    "doc": ColumnType(kind=Kind.JSON, source="jsonb"),
    "tags": ColumnType(kind=Kind.ARRAY, source="text[]", element=ColumnType(kind=Kind.STRING, source="text")),
    "raw": ColumnType(kind=Kind.BYTES, source="bytea"),
    "flag": ColumnType(kind=Kind.BOOL, source="boolean"),
    "real": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
}
LOCAL = ColumnType(kind=Kind.TIMESTAMP, source="timestamp without time zone")
NO_DAY = 2**31 - 1
"""The date infinity."""


def table(version: int = 1, **more: ColumnType) -> TableSchema:
    columns = tuple(Column(name=name, type=type_) for name, type_ in {**COLUMNS, **more}.items())
    return TableSchema(name=TableName("db", "public", "orders"), version=version, columns=columns, primary_key=("id",))


SCHEMA = table()


def rows(
    after: Sequence[dict[str, Any] | None],
    *,
    before: Sequence[dict[str, Any] | None] | None = None,
    ops: Sequence[Op] | None = None,
    schema: TableSchema = SCHEMA,
    **more: Any,
) -> RowBatch:
    """Return rows with the keys 0, 1, …; a column that is not given is null."""
    wall = pa.array(range(1_700_000_000_000_000_001, 1_700_000_000_000_000_001 + len(after)), pa.int64())
    keyed = [None if row is None else {"id": key, **row} for key, row in enumerate(after)]
    given = [Op.DELETE if row is None else Op.UPDATE for row in after] if ops is None else ops
    return RowBatch.of(
        schema,
        op=pa.array(given, pa.uint8()),
        updated=RowBatch.timestamps(wall, pa.array([7] * len(after), pa.int32())),
        key=pa.array([{"id": key} for key in range(len(after))], schema.key_type),
        after=pa.array(keyed, schema.after_type),
        before=None if before is None else pa.array(before, schema.after_type),
        **more,
    )


def plan(session: SparkSession, text: str, *schemas: TableSchema) -> list[QueryPlan]:
    return planned(session, text, *(schemas or (SCHEMA,)))


def one(session: SparkSession, text: str, *batches: RowBatch, deletes_as_rows: bool = True) -> RowBatch:
    (found,) = answers(session, plan(session, text), *batches, deletes_as_rows=deletes_as_rows)
    assert isinstance(found, RowBatch), str(found)
    return found


EVERYTHING = {
    "price": "12345.60",
    "amount": "1e3",
    "Name": "é\x00\n",
    "at": 2**63 - 1,
    "day": NO_DAY,
    "hour": 86_400_000_000,
    "doc": '{"a": 1}',
    "tags": '["a"]',
    "raw": b"\x00\xff",
    "flag": True,
    "real": float("-inf"),
}


def test_columns_that_are_passed_on_do_not_change_whatever_they_hold(session: SparkSession) -> None:
    types = {name: pa.int64() if name in ("at", "hour") else type_.arrow for name, type_ in COLUMNS.items()}
    types["day"] = pa.int32()
    values = {"id": 0, **EVERYTHING}
    after = RowBatch.struct(
        SCHEMA.after_type,
        [pa.array([values[name]], types[name]).view(COLUMNS[name].arrow) for name in COLUMNS],
    )
    mvcc = RowBatch.timestamps(pa.array([5], pa.int64()), pa.array([6], pa.int32()))
    given = rows([{}])
    given = RowBatch.of(
        SCHEMA, **{name: given.column(name) for name in ("op", "updated", "key")}, after=after, mvcc=mvcc
    )
    found = one(session, "SELECT * FROM orders", given)
    assert found.schema == SCHEMA
    assert found.batch.equals(given.batch.select(found.batch.schema.names))
    assert set(found.batch.schema.names) == set(given.batch.schema.names)


EXPRESSIONS = {
    "price * 2": (Kind.DECIMAL, "24691.20"),
    "amount + 0.5": (Kind.DECIMAL, "0.83333333333333333"),
    "upper(name)": (Kind.STRING, "JANE"),
    "name || '''s'": (Kind.STRING, "Jane's"),
    "name RLIKE '^J\\w+$'": (Kind.BOOL, True),
    "id::bigint + 1": (Kind.INT, 1),
    "real / 4": (Kind.FLOAT, 0.375),
    "day + 1": (Kind.DATE, "2024-03-01"),
    "date_trunc('day', at)": (Kind.TIMESTAMPTZ, "2024-02-29 00:00:00+00:00"),
    "hour": (Kind.TIME, "11:22:33"),
    "left(hour, 2)": (Kind.STRING, "11"),
    "get_json_object(doc, '$.a')": (Kind.STRING, "1"),
    "from_json(doc, 'a int, b string')": (Kind.JSON, '{"a":1,"b":null}'),
    "array(id, id + 1)": (Kind.JSON, "[0,1]"),
    "octet_length(raw)": (Kind.INT, 2),
    "CASE WHEN flag THEN 'yes' ELSE 'no' END": (Kind.STRING, "yes"),
    "coalesce(cdc_prev.name, 'none')": (Kind.STRING, "none"),
    "(cdc_prev).id": (Kind.INT, None),
    "cdc_prev IS NULL": (Kind.BOOL, True),
    "event_op()": (Kind.STRING, "update"),
    "statement_timestamp()": (Kind.TIMESTAMPTZ, "2023-11-14 22:13:20+00:00"),
    "crdb_internal_mvcc_timestamp": (Kind.DECIMAL, "1700000000000000001.0000000007"),
}
"""Their types and values."""


def test_expressions_have_the_values_and_the_types_of_spark_sql(session: SparkSession) -> None:
    given = rows(
        [
            {
                "price": "12345.60",
                "amount": "0.33333333333333333333",
                "Name": "Jane",
                "at": 1709220153 * 1_000_000,
                "day": 19782,
                "hour": (11 * 3600 + 22 * 60 + 33) * 1_000_000,
                "doc": '{"a": 1}',
                "raw": b"\x00\xff",
                "flag": True,
                "real": 1.5,
            }
        ]
    )
    items = ", ".join(f"{expression} AS x{number}" for number, expression in enumerate(EXPRESSIONS))
    found = one(session, f"SELECT {items} FROM orders", given)
    shown = {}
    for number, (expression, column) in enumerate(zip(EXPRESSIONS, found.schema.columns, strict=True)):
        value, kind = found.column("after").field(f"x{number}")[0].as_py(), column.type.kind
        shown[expression] = kind, str(value) if kind in (Kind.DATE, Kind.TIME, Kind.TIMESTAMPTZ) else value
    assert shown == EXPRESSIONS
    assert found.schema.key_columns == (SCHEMA.columns[0],)
    assert found.column("key").to_pylist() == [{"id": 0}]


def test_only_rows_that_meet_the_condition_are_left_and_keep_their_order(session: SparkSession) -> None:
    given = rows([{"real": None if n % 3 == 0 else float(n)} for n in range(300)])
    found = one(session, "SELECT id FROM orders WHERE real > 10 AND id % 2 = 0", given)
    wanted = [n for n in range(300) if n % 3 and n > 10 and n % 2 == 0]
    assert found.column("after").field("id").to_pylist() == wanted
    assert [found.slice(n).earliest() for n in range(len(found))] == [given.slice(n).earliest() for n in wanted]


@pytest.mark.parametrize("as_rows", [True, False])
def test_a_deleted_row_has_its_key_and_the_row_before(session: SparkSession, as_rows: bool) -> None:
    given = rows([None], before=[{"id": 0, "Name": "Jane"}])
    text = "SELECT id, name, cdc_prev.name AS old, event_op() AS op FROM orders WHERE cdc_prev.name = 'Jane'"
    found = one(session, text, given, deletes_as_rows=as_rows)
    wanted = {"id": 0, "name": None, "old": "Jane", "op": "delete"} if as_rows else None
    assert found.column("after").to_pylist() == [wanted]
    assert found.column("key").to_pylist() == [{"id": 0}]


def test_a_row_of_a_scan_is_an_insert(session: SparkSession) -> None:
    found = one(session, "SELECT event_op() FROM orders", rows([{}, {}], ops=[Op.INSERT, Op.SCAN]))
    assert found.column("after").to_pylist() == [{"event_op": "insert"}] * 2
    assert found.column("op").to_pylist() == [Op.INSERT, Op.SCAN]


def test_a_row_for_which_an_expression_fails_is_alone_and_the_others_keep_their_order(session: SparkSession) -> None:
    given = rows([{"Name": text} for text in ("1", "x", "2", "y", "3")])
    first, x, second, y, third = answers(session, plan(session, "SELECT id, name::int AS n FROM orders"), given)
    for found, wanted in ((first, 1), (second, 2), (third, 3)):
        assert isinstance(found, RowBatch)
        assert found.column("after").field("n").to_pylist() == [wanted]
    for bad, key in ((x, "[1]"), (y, "[3]")):
        assert isinstance(bad, BadRow)
        assert (bad.stage, bad.key) == ("query", key)
        assert bad.reason.startswith("the query cannot compute name::int: ")


def test_a_condition_that_fails_names_itself(session: SparkSession) -> None:
    given = rows([{"real": 0.0}, {"real": 2.0}])
    bad, good = answers(session, plan(session, "SELECT id FROM orders WHERE 1 / real > 0.1"), given)
    assert isinstance(bad, BadRow)
    assert "WHERE 1 / real > 0.1" in bad.reason
    assert isinstance(good, RowBatch)


def test_a_number_that_no_decimal_of_spark_holds_fails_only_where_it_is_used(session: SparkSession) -> None:
    refused = ["NaN", "Infinity", "1" + 20 * "0", "1" + 30 * "0", "1" + 300 * "0"]
    values = ["1", *(value for each in refused for value in (each, "2.50"))]
    given = rows([{"amount": value} for value in values])
    passed = one(session, "SELECT amount FROM orders", given)
    assert passed.column("after").field("amount").to_pylist() == values
    found = answers(session, plan(session, "SELECT id, amount FROM orders WHERE amount > 0"), given)
    good = [each.column("after").field("amount").to_pylist() for each in found if isinstance(each, RowBatch)]
    bad = [each.key for each in found if isinstance(each, BadRow)]
    assert [value for part in good for value in part] == [value for value in values if value not in refused]
    assert bad == [f"[{values.index(value)}]" for value in refused]


def test_a_value_that_the_source_did_not_send_is_passed_on_as_such_and_fails_where_it_is_used(
    session: SparkSession,
) -> None:
    import numpy as np

    lacking = unavailable_column({"doc": np.array([False, True])})
    given = rows([{"doc": "1"}, {"Name": "b"}], unavailable=lacking)
    found = one(session, "SELECT id, doc AS d FROM orders", given)
    assert found.column("unavailable").to_pylist() == [None, ["d"]]
    good, bad = answers(session, plan(session, "SELECT length(doc) AS l FROM orders"), given)
    assert isinstance(good, RowBatch)
    assert not isinstance(bad, RowBatch)


def test_rows_of_several_versions_are_evaluated_side_by_side(session: SparkSession) -> None:
    newer = table(2, note=ColumnType(kind=Kind.STRING, source="text"))
    plans = plan(session, "SELECT * FROM orders WHERE id >= 0", SCHEMA, newer)
    old, new, last = answers(
        session, plans, rows([{"Name": "a"}]), rows([{"note": "b"}], schema=newer), rows([{"Name": "c"}])
    )
    assert isinstance(old, RowBatch)
    assert isinstance(new, RowBatch)
    assert isinstance(last, RowBatch)
    assert (old.schema, new.schema, last.schema) == (SCHEMA, newer, SCHEMA)
    assert new.column("after").field("note").to_pylist() == ["b"]


def test_rows_of_versions_with_the_same_columns_keep_their_version(session: SparkSession) -> None:
    (known,) = plan(session, "SELECT id FROM orders")
    old, new = answers(session, [known], rows([{}]), rows([{}, {}], schema=table(7)))
    assert isinstance(old, RowBatch)
    assert isinstance(new, RowBatch)
    assert (old.schema.version, len(old), new.schema.version, len(new)) == (1, 1, 7, 2)


def test_a_reference_of_spark_in_a_text_stays_what_it_is(session: SparkSession) -> None:
    found = one(session, "SELECT '${env:HOME} ${spark.app.name}' AS t FROM orders", rows([{}]))
    assert found.column("after").to_pylist() == [{"t": "${env:HOME} ${spark.app.name}"}]


def test_large_rows_never_fill_a_batch_with_more_than_its_bytes(session: SparkSession) -> None:
    (known,) = plan(session, "SELECT doc FROM orders WHERE id >= 0")
    schema = columns_schema([known.query])
    given = rows([{"doc": "x" * size} for size in (10, 3_000_000, 20, 5_000_000, 900_000, 30)])
    parts = list(packed_columns(given, queries=[known.query], schema=schema))
    assert sum(map(len, parts)) >= given.nbytes // ROW_BYTES - len(parts)
    found = answers(session, [known], given)
    lengths = [len(text) for part in found for text in part.column("after").field("doc").to_pylist()]  # type: ignore
    assert lengths == [10, 3_000_000, 20, 5_000_000, 900_000, 30]


def test_a_version_that_is_not_planned_is_named(session: SparkSession) -> None:
    (known,) = plan(session, "SELECT id FROM orders")
    with pytest.raises(UnplannedSchemaError, match=r"public\.orders") as unplanned:
        list(
            packed_columns(
                rows([{}], schema=table(2, note=COLUMNS["doc"])),
                queries=[known.query],
                schema=columns_schema([known.query]),
            )
        )
    assert TableSchema.from_json(unplanned.value.schema) == table(2, note=COLUMNS["doc"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT foo(id) AS x FROM orders", "foo(id): there is no function 'foo'"),
        ("SELECT name + day AS x FROM orders", "name + day: Cannot resolve"),
        ("SELECT explode(array(id)) AS x FROM orders", "a query cannot use explode(array(id)): it gives several rows"),
        ("SELECT mode(id) AS x FROM orders", "a query cannot call mode: it takes many rows"),
        ("SELECT any_value(id) AS x FROM orders", "a query cannot "),
        ("SELECT null AS x FROM orders", "null is null for every row and has no type"),
        ("SELECT at - at AS x FROM orders", "at - at has the type interval day to second"),
        ("SELECT id FROM orders WHERE id + 1", "the condition has the type int, not boolean"),
        ("SELECT id FROM orders WHERE 1 = 2", "the condition does not match any rows"),
        ("SELECT id FROM orders WHERE id = 1 AND false", "the condition does not match any rows"),
        ("SELECT day < 'today' AS x FROM orders", "day < 'today': 'today' reads the clock"),
        ("SELECT id FROM orders WHERE at > ' Now UTC'", "at > ' Now UTC': 'now' reads the clock"),
        ("SELECT to_date('yesterday') AS x FROM orders", "to_date('yesterday'): 'yesterday' reads the clock"),
        (
            "SELECT day IN (concat('to', 'morrow')) AS x FROM orders",
            "day IN (concat('to', 'morrow')): 'tomorrow'",
        ),
        ("SELECT day BETWEEN 'epoch' AND 'today' AS x FROM orders", "day BETWEEN 'epoch' AND 'today': 'today' reads"),
        ("SELECT id FROM orders WHERE NULL", "the condition does not match any rows"),
        ("SELECT uper(name) AS x FROM orders", "uper(name): there is no function 'uper'; did you mean 'upper'?"),
        ("SELECT strpos(name, 'a') AS x FROM orders", "strpos(name, 'a'): there is no function 'strpos'; write instr("),
        ("SELECT id::int8 AS x FROM orders", "id::int8: Spark has no type int8; write bigint"),
        ("SELECT id::varchar AS x FROM orders", "id::varchar: Spark has no type varchar; write string"),
        ("SELECT tags[0] AS x FROM orders", 'tags[0]: Can\'t extract a value from "tags". Need a complex type'),
        ("SELECT size(tags) AS x FROM orders", "size(tags): Cannot resolve"),
        ("SELECT doc.a AS x FROM orders", "column doc is a text of JSON in expressions; write get_json_object(doc, "),
        ("SELECT doc->'x' AS x FROM orders", "doc->'x': Syntax error at or near '->'. For a member of JSON, write"),
        ("SELECT at AT TIME ZONE 'Asia/Tokyo' AS x FROM orders", "at AT TIME ZONE 'Asia/Tokyo': Syntax error at or n"),
        ("SELECT id FROM orders WHERE price > 'abc'", "price > 'abc' fails for every row: The value 'abc' of the type"),
        ("SELECT id FROM orders WHERE at > '2024-13-01'", "at > '2024-13-01' fails for every row: The value '2024-13"),
        ("SELECT at > '12:30' AS x FROM orders", "at > '12:30': '12:30' is a time of day, to which Spark would add"),
        ("SELECT hour + INTERVAL '1' HOUR AS x FROM orders", "hour + INTERVAL '1' HOUR: column hour is a time of day"),
        ("SELECT regexp_matches(name, 'a') AS x FROM orders", "regexp_matches(name, 'a'): there is no function 'regex"),
        ("SELECT to_timestamp(hour) AS x FROM orders", "to_timestamp(hour): column hour is a time of day"),
    ],
)
def test_what_spark_refuses_is_said_in_a_sentence_with_its_place(
    session: SparkSession, capfd: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    with pytest.raises(OptionError) as refused:
        plan(session, text)
    first, shown, _ = str(refused.value).splitlines()
    assert first.startswith("query, line 1, column ")
    assert first.partition(": ")[2].startswith(reason)
    assert shown.strip() == text
    assert "typed" not in first
    assert capfd.readouterr().err == ""


def test_what_is_written_in_place_of_postgresql_is_named(session: SparkSession) -> None:
    told = {
        "size(tags)": "from_json(tags, 'array<string>')",
        "(doc).member": "get_json_object(doc, '$.member')",
        "at AT TIME ZONE 'Asia/Tokyo'": "convert_timezone('UTC', 'Europe/Berlin', column)",
        "(at) at time zone 'Asia/Tokyo'": "convert_timezone('Europe/Berlin', 'UTC', column)::timestamp",
        "local AT TIME ZONE 'Asia/Tokyo'": "convert_timezone('Europe/Berlin', 'UTC', column)::timestamp",
        "ARRAY [1, 2]": "array(…)",
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


def test_a_local_time_becomes_the_instant_that_it_is_in_postgresql(session: SparkSession) -> None:
    schema = table(local=LOCAL)
    text = "SELECT convert_timezone('Asia/Tokyo', 'UTC', local)::timestamp AS t FROM orders"
    (found,) = answers(session, plan(session, text, schema), rows([{"local": 1_700_000_000_000_000}], schema=schema))
    assert isinstance(found, RowBatch)
    assert found.schema.columns[0].type.kind is Kind.TIMESTAMPTZ
    assert found.column("after").field("t")[0].as_py().isoformat() == "2023-11-14T13:13:20+00:00"


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


def test_times_within_json_keep_their_microseconds(session: SparkSession) -> None:
    given = rows([{}], before=[{"id": 0, "at": 1_700_000_000_123_456}])
    found = one(
        session, "SELECT named_struct('a', cdc_prev.at) AS s, array(cdc_prev.at::timestamp_ntz) AS n FROM orders", given
    )
    assert found.column("after").to_pylist() == [
        {"s": '{"a":"2023-11-14T22:13:20.123456Z"}', "n": '["2023-11-14T22:13:20.123456"]'}
    ]


def test_the_row_before_as_an_item_is_as_json_messages_have_it(session: SparkSession) -> None:
    before = {"id": 0, **EVERYTHING, "hour": 45_000_500_000, "real": 1e20}
    given = rows([{}, None, {}], before=[before, {"id": 1}, None])
    found = one(session, "SELECT cdc_prev, cdc_prev.hour || '' AS tod FROM orders", given)
    first, second, third = found.column("after").to_pylist()
    assert first == {
        "cdc_prev": '{"Name": "é\\u0000\\n", "amount": 1e3, "at": "infinity", "day": "infinity", "doc": {"a": 1},'
        ' "flag": true, "hour": "12:30:00.5", "id": 0, "price": 12345.60, "raw": "\\\\x00ff",'
        ' "real": 100000000000000000000, "tags": ["a"]}',
        "tod": "12:30:00.5",
    }
    assert second["cdc_prev"].startswith('{"Name": null, "amount": null')
    assert '"id": 1' in second["cdc_prev"]
    assert third == {"cdc_prev": None, "tod": None}
    assert found.schema.column("cdc_prev").type.kind is Kind.JSON


def test_a_text_that_says_today_is_a_text_where_none_makes_a_time_of_it(session: SparkSession) -> None:
    found = one(session, "SELECT name = 'today' AS x, 'Now' || name AS y FROM orders", rows([{"Name": "today"}]))
    assert found.column("after").to_pylist() == [{"x": True, "y": "Nowtoday"}]


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


def test_decimals_keep_their_scale(session: SparkSession) -> None:
    found = one(session, "SELECT price + 0.00 AS p FROM orders", rows([{"price": "1.10"}]))
    assert Decimal(found.column("after").field("p")[0].as_py()) == Decimal("1.10")
    assert found.column("after").field("p")[0].as_py() == "1.10"


def test_an_updated_timestamp_is_the_one_of_the_change(session: SparkSession) -> None:
    found = one(session, "SELECT id FROM orders", rows([{}]))
    assert found.latest() == Timestamp(1_700_000_000_000_000_001, 7)


def test_a_section_filters_new_rows_and_keeps_deletes_and_the_row_before(session: SparkSession) -> None:
    given = rows(
        [{"Name": "ann", "day": NO_DAY}, {"Name": "bob"}, {"Name": None}, None],
        before=[{"id": 0, "Name": "old", "day": -NO_DAY}, {"id": 1}, None, {"id": 3, "Name": "gone"}],
    )
    section = {"columns": {"exclude": ["price"]}, "mask": {"Name": {"truncate": 2}}}
    ((kept, deleted), *others) = (
        _of_section(session, {**section, "where": where}, given) for where in ("name = 'ann'", "id = 0", "id = 3")
    )
    assert kept.column("after").field("Name").to_pylist() == ["an"]
    assert {field.name for field in kept.schema.after_type} == COLUMNS.keys() - {"price"}
    assert kept.column("after").field("day").cast(pa.int32()).to_pylist() == [NO_DAY]
    assert kept.column("before").field("day").cast(pa.int32()).to_pylist() == [-NO_DAY]
    assert [row.column("before").field("Name").to_pylist() for row in (kept, deleted)] == [["ol"], ["go"]]
    assert deleted.column("after").to_pylist() == [None]
    assert [[row.column("op").to_pylist() for row in found] for found in others] == [[[Op.UPDATE]], [[Op.DELETE]]]


def _of_section(session: SparkSession, section: dict[str, Any], given: RowBatch) -> list[RowBatch]:
    """Return what a section gives, a batch for each row."""
    query = Selection.parse("orders", section).bind(given.schema, number=0, diff=True)
    found = answers(session, [plan_query(session, query)], given, deletes_as_rows=False)
    return [part.slice(index, 1) for part in found if isinstance(part, RowBatch) for index in range(len(part))]


def test_a_query_gives_topics_that_are_no_columns(session: SparkSession) -> None:
    query = "SELECT id, CASE WHEN id < 2 THEN 'low-' || name ELSE cdc_prev.name END AS cdc_topic FROM orders"
    given = rows([{"Name": "a"}, {"Name": None}, None], before=[None, None, {"id": 2, "Name": "gone"}])
    query = query.replace("name", '"Name"')
    found = one(session, query, given)
    assert [column.name for column in found.schema.columns] == ["id"]
    assert found.column("topic").to_pylist() == ["low-a", None, "gone"]
    assert found.column("after").to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_topic_that_is_no_text_is_refused_and_one_that_fails_makes_a_bad_row(session: SparkSession) -> None:
    with pytest.raises(OptionError, match="cdc_topic must be text, and id has the type integer; cast it to STRING"):
        plan(session, "SELECT id, id AS cdc_topic FROM orders")
    failing = 'SELECT id, CAST(CAST("Name" AS INT) AS STRING) AS cdc_topic FROM orders'
    good, bad = answers(session, plan(session, failing), rows([{"Name": "5"}, {"Name": "x"}]))
    assert isinstance(good, RowBatch)
    assert good.topic == "5"
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("the query cannot compute CAST(CAST(")
