"""What Arrow evaluates of a query. That it compares as Spark does, tests/end_to_end/test_restricted_scans.py shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from cdc_testing.queried_orders import SCHEMA, rows

from cdc_core import Op, RowBatch, unavailable_column
from cdc_core.queries.arrow_evaluation import candidates, given_rows
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import BoundQuery, delivered_rows, output_schema
from cdc_core.queries.selection import Selection
from cdc_core.queries.statement import parse_query

NAMES = ["a", None, "b"]


def bound(text: str) -> BoundQuery:
    return bind(parse_query(text), SCHEMA)


def left(condition: str, given: RowBatch) -> list[int]:
    found = candidates(given, bound(f"SELECT id FROM orders WHERE {condition}"))
    ids: list[int] = found.column("key").field("id").to_pylist()
    return ids


@pytest.mark.parametrize(
    ("text", "by_spark", "evaluated"),
    [
        ("SELECT * FROM orders", False, ()),
        ("SELECT doc AS d, id FROM orders WHERE id > 5 AND name IN ('a', 'b')", False, ()),
        ("SELECT id FROM orders WHERE event_op() <> 'delete' AND Event_Op() IN ('insert', 'update')", False, ()),
        ("SELECT id FROM orders WHERE event_op() || 's' = 'inserts' AND id > 5", True, ("id",)),
        ("SELECT id FROM orders WHERE id > 5 AND upper(name) = 'A'", True, ("id", "Name")),
        ("SELECT upper(name) AS n FROM orders WHERE id > 5", True, ("Name",)),
        ("SELECT id FROM orders WHERE price > 5", True, ("price",)),
        ("SELECT id FROM orders WHERE cdc_prev.id > 5", True, ()),
        ("SELECT id FROM orders WHERE INTERVAL '1' DAY > CAST('1' AS INTERVAL DAY)", True, ()),
        (f"SELECT id FROM orders WHERE id < {'9' * 5000}", True, ("id",)),
        ("SELECT id, 'a' AS cdc_topic FROM orders", True, ()),
    ],
)
def test_spark_gets_only_what_arrow_does_not_decide(text: str, by_spark: bool, evaluated: Sequence[str]) -> None:
    query = bound(text)
    assert query.planned
    assert (query.by_spark, query.evaluated) == (by_spark, evaluated)


def test_a_row_stays_unless_a_comparison_is_false_where_spark_evaluates_more() -> None:
    given = rows([{"Name": name} for name in NAMES])
    assert left("name = 'a'", given) == [0]
    assert left("name = 'a' AND 1 / id > 0", given) == [0, 1]
    assert left("name IN ('a', 'c') AND 1 / id > 0", given) == [0, 1]
    assert left("name IS NULL AND id < 9223372036854775807", given) == [1]
    assert left("id IN (1, 9223372036854775807)", given) == [1]


def test_a_deleted_row_has_its_key_and_nulls_and_meets_the_condition_of_a_section_unless_it_is_of_the_key() -> None:
    given = rows([{"Name": "a"}, None, {"Name": "b"}])
    assert left("name IS NULL", given) == [1]
    assert left("id >= 1", given) == [1, 2]

    def of_section(where: str) -> list[int]:
        query = Selection.parse("orders", {"where": where}).bind(SCHEMA, number=0, diff=False)
        ids: list[int] = candidates(given, query).column("key").field("id").to_pylist()
        return ids

    assert of_section("name = 'a'") == [0, 1]
    assert of_section("id > 1") == [2]


def test_the_event_is_compared_as_spark_does() -> None:
    given = rows([{}, {}, None, {}], ops=[Op.INSERT, Op.UPDATE, Op.DELETE, Op.SCAN])
    assert left("event_op() = 'insert'", given) == [0, 3]
    assert left("event_op() <> 'delete' AND id > 0", given) == [1, 3]
    assert left("event_op() IN ('update', 'delete', 'scan')", given) == [1, 2]
    assert left("event_op() IS NULL", given) == []


def test_a_row_that_lacks_a_value_stays_unless_comparisons_of_other_values_refuse_it() -> None:
    lacking = unavailable_column({"doc": np.array([False, True, True])})
    given = rows([{}, {}, {"Name": "b"}], unavailable=lacking)
    assert left("doc IS NOT NULL", given) == [1, 2]
    assert left("doc IS NOT NULL AND name = 'b'", given) == [2]
    assert left("name = 'b' AND length(doc) > 1", given) == [0, 1, 2]  # a part after a null is evaluated
    assert left("id < 2 AND length(doc) > 1", given) == [0, 1]
    assert left("id = 0", given) == [0]


def test_columns_are_passed_on_under_their_new_names() -> None:
    lacking = unavailable_column({"doc": np.array([False, True, False])})
    given = rows([{"Name": "a"}, {}, None], unavailable=lacking)
    query = bound("SELECT name AS n, id, doc AS d FROM orders")
    passed = delivered_rows(given, query.passing, key=b"")
    found = given_rows(passed, query, output_schema(query, {}), deletes_as_rows=True)
    assert found.column("after").to_pylist() == [
        {"n": "a", "id": 0, "d": None},
        {"n": None, "id": 1, "d": None},
        {"n": None, "id": 2, "d": None},
    ]
    assert found.column("unavailable").to_pylist() == [None, ["d"], None]
    found = given_rows(passed, query, output_schema(query, {}), deletes_as_rows=False)
    assert found.column("after").to_pylist()[2] is None
