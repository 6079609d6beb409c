"""Unavailable values: the sets of columns that rows lack, also after a slice and after Arrow IPC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from cdc_testing.table_rows import Row, make_rows
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import (
    Column,
    ColumnType,
    DecodedRow,
    EncodeError,
    Kind,
    Op,
    RowBatch,
    TableName,
    TableSchema,
    Timestamp,
    refuse_unavailable,
    unavailable_by_column,
    unavailable_column,
    unavailable_sets,
)
from cdc_core.decoder import rows_of

INT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
TEXT = ColumnType(kind=Kind.STRING, source="text")
TYPES = {"id": INT, "a": TEXT, "b": TEXT, "c": TEXT}
SETS = st.lists(st.sets(st.sampled_from("abc")), max_size=12)


def rows_with(lacking: Sequence[set[str]]) -> RowBatch:
    changes = [
        Row(
            op=Op.UPDATE,
            after={"id": n, **{name: None if name in names else "x" for name in "abc"}},
            unavailable=tuple(names),
        )
        for n, names in enumerate(lacking)
    ]
    return make_rows(TYPES, changes, primary_key=["id"])


def found_in(rows: RowBatch) -> list[set[str]]:
    found: list[set[str]] = [set() for _ in range(len(rows))]
    for names, indices in unavailable_sets(rows):
        for index in indices:
            found[index] |= set(names)
    return found


@given(SETS, st.data())
def test_sets_survive_slices_and_arrow_ipc(lacking: list[set[str]], data: st.DataObject) -> None:
    rows = rows_with(lacking)
    assert found_in(rows) == lacking
    start = data.draw(st.integers(0, len(lacking)))
    stop = data.draw(st.integers(start, len(lacking)))
    part = rows.slice(start, stop - start)
    for each in (part, RowBatch.from_ipc(part.to_ipc())):
        assert found_in(each) == lacking[start:stop]
        assert each.has_unavailable == any(lacking[start:stop])
        assert unavailable_by_column(each).keys() == set().union(*lacking[start:stop])


@given(SETS)
def test_every_row_is_in_one_set_and_complete_rows_come_first(lacking: list[set[str]]) -> None:
    sets = unavailable_sets(rows_with(lacking))
    assert sorted(int(index) for _, indices in sets for index in indices) == list(range(len(lacking)))
    assert [names for names, _ in sets].index(()) == 0 if set() in lacking else () not in dict(sets) or not lacking
    assert all(list(names) == sorted(names) for names, _ in sets)


def test_a_batch_without_unavailable_values_has_no_such_column() -> None:
    assert "unavailable" not in rows_with([set(), set()]).batch.schema.names
    assert unavailable_column({"a": np.zeros(3, np.bool_)}) is None
    assert unavailable_column({}) is None


def test_a_format_without_a_place_for_them_refuses_the_row() -> None:
    refuse_unavailable(rows_with([set(), set()]), format_="CSV")
    wanted = r"column b of table public\.orders as CSV \(key {'id': 1}\).*TABLE public\.orders REPLICA.*'lookup'"
    with pytest.raises(EncodeError, match=wanted) as caught:
        refuse_unavailable(rows_with([set(), {"b"}]), format_="CSV")
    assert caught.value.row == 1


def test_decoded_rows_that_lack_columns_become_a_batch_that_says_so() -> None:
    columns = tuple(Column(name=name, type=type_) for name, type_ in TYPES.items())
    schema = TableSchema(name=TableName("d", "public", "t"), version=1, columns=columns, primary_key=("id",))
    whole = {"id": 1, "a": "x", "b": None, "c": "z"}
    rows = [
        DecodedRow(key=(1,), after=whole, updated=Timestamp(1)),
        DecodedRow(key=(1,), after={"id": 1, "b": "y"}, updated=Timestamp(2), unavailable=("a", "c")),
        DecodedRow(key=(1,), after=None, updated=Timestamp(3)),
    ]
    batch = rows_of(schema, rows)
    assert batch.column("after").to_pylist() == [whole, {"id": 1, "a": None, "b": "y", "c": None}, None]
    assert batch.column("unavailable").to_pylist() == [None, ["a", "c"], None]
    assert "unavailable" not in rows_of(schema, rows[::2]).batch.schema.names
