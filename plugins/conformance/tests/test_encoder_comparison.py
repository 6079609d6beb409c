"""Comparison of decoded rows: what may differ, and how a difference is described."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from cdc_conformance.encoders.comparison import differences, expected_rows, same
from cdc_conformance.encoders.form import Form
from cdc_conformance.rows import INT8, START, TEXT, Change, rows, table

from cdc_core import ColumnType, Envelope, Kind, Op, Timestamp

ORDERS = table("orders", {"id": INT8, "note": TEXT})
WRAPPED = Form(output="messages", envelope=Envelope(updated=True))
BARE = Form(output="files", envelope=Envelope(name="bare"))


@pytest.mark.parametrize(
    ("kind", "wanted", "found", "is_same"),
    [
        (Kind.FLOAT, math.nan, math.nan, True),
        (Kind.FLOAT, 0.0, -0.0, False),
        (Kind.FLOAT, 1.0, 1, False),
        (Kind.INT, 1, True, False),
        (Kind.INT, 1, 1.0, False),
        (Kind.INT, 0, None, False),
        (Kind.DECIMAL, "1.50", "1.5", False),
        (Kind.STRING, "null", None, False),
        (Kind.STRING, "e\u0301", "\u00e9", False),
        (Kind.JSON, '{"a": 1.50, "b": []}', '{"b":[ ],"a":1.5}', True),
        (Kind.JSON, '{"a": 12345678901234567890}', '{"a": 12345678901234567891}', False),
        (Kind.JSON, '{"a": 1, "a": 2}', '{"a": 2}', False),
        (Kind.JSON, '{"a": 1}', {"a": 1}, False),
        (Kind.JSON, '"1"', "1", False),
        (Kind.ARRAY, "[1, null]", "[1,null]", True),
        (Kind.ARRAY, "[1, null]", "[null, 1]", False),
    ],
)
def test_values_are_the_same_if_they_are_equal_exactly(kind: Kind, wanted: Any, found: Any, *, is_same: bool) -> None:
    assert same(ColumnType(kind=kind, source=""), wanted, found) is is_same


def test_a_difference_names_form_row_and_column() -> None:
    batch = rows(ORDERS, [Change({"id": 1, "note": "a"}), Change({"id": 2, "note": "b"})])
    wanted = expected_rows(batch, "orders", WRAPPED)
    assert differences(ORDERS, WRAPPED, wanted, wanted) == ""
    where = "envelope 'wrapped' with updated, as messages: "
    row = f"{where}row 1 of table public.orders (key (2,)): "
    first, second = wanted
    changed = {
        row + "in the row, column note (text) is 'c', not 'b'": {"after": {"id": 2, "note": "c"}},
        row + "the row has the columns ['id'], not ['id', 'note']": {"after": {"id": 2}},
        row + "the row is None, not {'id': 2, 'note': 'b'}": {"after": None},
        row + "the key is (3,), not (2,)": {"key": (3,)},
        row + "the key is (), not (2,)": {"key": ()},
        row + f"updated is '{START}', not '{Timestamp(START.wall + 1)}'": {"updated": START},
    }
    for difference, change in changed.items():
        assert differences(ORDERS, WRAPPED, wanted, [first, dataclasses.replace(second, **change)]) == difference
    assert differences(ORDERS, WRAPPED, wanted, [first]) == where + "rows written: 2, rows read: 1"


def test_a_delete_may_be_its_key_and_nulls_only_in_bare() -> None:
    (delete,) = expected_rows(rows(ORDERS, [Change({"id": 1}, op=Op.DELETE)]), "orders", BARE)
    shown = dataclasses.replace(delete, after={"id": 1, "note": None})
    assert differences(ORDERS, BARE, [delete], [shown]) == ""
    assert differences(ORDERS, BARE, [delete], [delete]) == ""
    assert "column id" in differences(
        ORDERS, BARE, [delete], [dataclasses.replace(delete, after={"id": 2, "note": None})]
    )
    (delete,) = expected_rows(rows(ORDERS, [Change({"id": 1}, op=Op.DELETE)]), "orders", WRAPPED)
    assert "the row is {'id': 1, 'note': None}, not None" in differences(
        ORDERS, WRAPPED, [delete], [dataclasses.replace(delete, after={"id": 1, "note": None})]
    )
