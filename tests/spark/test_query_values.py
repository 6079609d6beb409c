"""What queries give, evaluated by the real Spark, over rows of every type."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cdc_testing.evaluating import answers
from cdc_testing.queried_orders import COLUMNS, EVERYTHING, LOCAL, NO_DAY, SCHEMA, one, plan, rows, table
from pyspark.sql import SparkSession

from cdc_core import ColumnType, Kind, Op, RowBatch, Timestamp, unavailable_column
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.queries.selection import Selection
from cdc_core.spark.columns import ROW_BYTES, columns_schema, packed_columns
from cdc_core.spark.query_planning import plan_query


def test_columns_that_are_passed_on_do_not_change_whatever_they_hold(session: SparkSession) -> None:
    types = {name: pa.int64() if name in ("at", "hour") else type_.arrow for name, type_ in COLUMNS.items()}
    types["day"] = pa.int32()
    values = {"id": 0, **EVERYTHING}
    after = RowBatch.struct(
        SCHEMA.after_type, [pa.array([values[name]], types[name]).view(COLUMNS[name].arrow) for name in COLUMNS]
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
    assert found.schema.key_columns == (replace(SCHEMA.columns[0], nullable=False),)
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


def test_a_computed_text_that_is_not_utf_8_is_refused(session: SparkSession) -> None:
    given = rows([{"raw": raw} for raw in (b"a", b"b\xff", None)])
    first, bad, last = answers(session, plan(session, "SELECT id, raw::string AS t FROM orders"), given)
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("the query cannot compute raw::string: its text is not valid UTF-8 at byte 2; ")
    assert bad.row.column("after").to_pylist() == [{"id": 1, "t": None}]
    for found, wanted in ((first, "a"), (last, None)):
        assert isinstance(found, RowBatch)
        assert found.column("after").field("t").to_pylist() == [wanted]


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
    lacking = unavailable_column({"doc": np.array([False, True])})
    given = rows([{"doc": "1"}, {"Name": "b"}], unavailable=lacking)
    found = one(session, "SELECT id, doc AS d FROM orders", given)
    assert found.column("unavailable").to_pylist() == [None, ["d"]]
    good, bad = answers(session, plan(session, "SELECT length(doc) AS l FROM orders"), given)
    assert isinstance(good, RowBatch)
    assert not isinstance(bad, RowBatch)


@pytest.mark.parametrize(
    ("condition", "refused"), [("1 / (id - 1) < 9 AND id <> 2", ["[1]"]), ("length(doc) > 0", ["[1]", "[2]"])]
)
def test_a_row_without_a_value_that_only_an_item_uses_fails_unless_the_condition_leaves_it_out(
    session: SparkSession, condition: str, refused: list[str]
) -> None:
    lacking = unavailable_column({"doc": np.array([False, True, True, False])})
    given = rows([{"doc": "1"}, {}, {}, {"doc": "4"}], unavailable=lacking)
    query = f"SELECT id, length(doc) AS l FROM orders WHERE {condition}"
    found = answers(session, plan(session, query), given)
    assert [each.key for each in found if isinstance(each, BadRow)] == refused
    assert all("the query uses column doc" in each.reason for each in found if isinstance(each, BadRow))
    assert [id_ for each in found if isinstance(each, RowBatch) for id_ in each.column("after").field("id").to_pylist()]


def test_rows_of_several_versions_are_evaluated_side_by_side(session: SparkSession) -> None:
    newer = table(2, note=ColumnType(kind=Kind.STRING, source="text"))
    plans = plan(session, "SELECT * FROM orders WHERE id + 0 >= 0", SCHEMA, newer)
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
    (known,) = plan(session, "SELECT doc FROM orders WHERE id + 0 >= 0")
    schema = columns_schema([known.query])
    given = rows([{"doc": "x" * size} for size in (10, 3_000_000, 20, 5_000_000, 900_000, 30)])
    parts = list(packed_columns(given, queries=[known.query], schema=schema, deletes_as_rows=True))
    assert sum(map(len, parts)) >= given.nbytes // ROW_BYTES - len(parts)
    found = answers(session, [known], given)
    lengths = [len(text) for part in found for text in part.column("after").field("doc").to_pylist()]  # type: ignore[union-attr]
    assert lengths == [10, 3_000_000, 20, 5_000_000, 900_000, 30]


def test_a_local_time_becomes_the_instant_that_it_is_in_postgresql(session: SparkSession) -> None:
    schema = table(local=LOCAL)
    text = "SELECT convert_timezone('Asia/Tokyo', 'UTC', local)::timestamp AS t FROM orders"
    (found,) = answers(session, plan(session, text, schema), rows([{"local": 1_700_000_000_000_000}], schema=schema))
    assert isinstance(found, RowBatch)
    assert found.schema.columns[0].type.kind is Kind.TIMESTAMPTZ
    assert found.column("after").field("t")[0].as_py().isoformat() == "2023-11-14T13:13:20+00:00"


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
