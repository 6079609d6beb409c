"""`rows` builds the batches that its arguments describe."""

from __future__ import annotations

from itertools import pairwise

import pytest
from cdc_conformance.rows import EVERY_KIND, INT8, START, TEXT, Change, rows, sample, table

from cdc_core import ColumnType, Kind, Op, Timestamp


def test_a_batch_holds_its_changes_in_order() -> None:
    orders = table("orders", {"id": INT8, "note": TEXT})
    late = Timestamp(START.wall + 50, 3)
    batch = rows(
        orders, [Change({"id": 1, "note": "a"}), Change({"id": 1}, op=Op.DELETE, updated=late), Change({"id": 2})]
    )
    assert batch.column("after").to_pylist() == [{"id": 1, "note": "a"}, None, {"id": 2, "note": None}]
    assert [row["id"] for row in batch.column("key").to_pylist()] == [1, 1, 2]
    assert [(row["wall"] - START.wall, row["logical"]) for row in batch.column("updated").to_pylist()] == [
        (0, 0),
        (50, 3),
        (51, 0),
    ]


def test_there_is_a_column_of_every_kind() -> None:
    assert {type_.kind for type_ in EVERY_KIND.values()} == set(Kind)


@pytest.mark.parametrize("type_", EVERY_KIND.values(), ids=EVERY_KIND.keys())
def test_samples_fit_their_type_and_differ_from_their_neighbours(type_: ColumnType) -> None:
    schema = table("t", {"id": INT8, "v": type_})
    values = [sample(type_, number) for number in (*range(100), 10**6)]
    batch = rows(schema, [Change({"id": number, "v": value}) for number, value in enumerate(values)])
    assert [row["v"] for row in batch.column("after").to_pylist()] == values
    assert all(one != other for one, other in pairwise(values))
