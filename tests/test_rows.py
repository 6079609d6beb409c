"""Row batches: checked columns, slices, the greatest timestamp, Arrow IPC."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, Timestamp
from cdc_core.rows import shown_key

SCHEMA = TableSchema(
    name=TableName("db", "public", "t"),
    version=2,
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64)),
        Column(name="v", type=ColumnType(kind=Kind.STRING, source="text")),
    ),
    primary_key=("id",),
)


def rows(stamps: list[Timestamp], *, deleted: frozenset[int] = frozenset()) -> RowBatch:
    ids = pa.array(range(len(stamps)), pa.int64())
    values = pa.array([f"v{n}" for n in range(len(stamps))], pa.string())
    mask = pa.array([n in deleted for n in range(len(stamps))], pa.bool_())
    return RowBatch.of(
        SCHEMA,
        op=pa.array([Op.DELETE if n in deleted else Op.UPDATE for n in range(len(stamps))], pa.uint8()),
        updated=RowBatch.timestamps(
            pa.array([stamp.wall for stamp in stamps], pa.int64()),
            pa.array([stamp.logical for stamp in stamps], pa.int32()),
        ),
        key=RowBatch.struct(SCHEMA.key_type, [ids]),
        after=RowBatch.struct(SCHEMA.after_type, [ids, values], mask),
    )


@given(st.lists(st.builds(Timestamp, st.integers(0, 3), st.integers(0, 3)), max_size=8), st.data())
def test_latest_is_the_greatest_updated(stamps: list[Timestamp], data: st.DataObject) -> None:
    batch = rows(stamps)
    assert batch.latest() == max(stamps, default=Timestamp())
    offset = data.draw(st.integers(0, len(stamps)))
    assert batch.slice(offset).latest() == max(stamps[offset:], default=Timestamp())


def test_ipc_and_back_keeps_schema_and_rows() -> None:
    batch = rows([Timestamp(1), Timestamp(2)], deleted=frozenset({1}))
    back = RowBatch.from_ipc(batch.to_ipc())
    assert back.schema == SCHEMA
    assert back.batch.equals(batch.batch)
    assert back.column("after").to_pylist() == [{"id": 0, "v": "v0"}, None]


def test_ipc_of_a_slice_holds_the_slice_alone() -> None:
    batch = rows([Timestamp(n) for n in range(1000)])
    part = batch.slice(10, 2)
    assert len(part.to_ipc()) < len(batch.to_ipc()) / 4
    assert RowBatch.from_ipc(part.to_ipc()).column("key").to_pylist() == [{"id": 10}, {"id": 11}]


def test_a_column_of_another_type_is_refused_by_name() -> None:
    good = rows([Timestamp(1)])
    columns = {name: good.column(name) for name in ("op", "updated", "after")}
    with pytest.raises(ValueError, match=r"column key of public\.t is"):
        RowBatch.of(SCHEMA, key=good.column("after"), **columns)


@pytest.mark.parametrize("more", [(), ("key", "afer")])
def test_columns_that_are_missing_or_unknown_are_refused(more: tuple[str, ...]) -> None:
    good = rows([Timestamp(1)])
    columns = {name: good.column("op") for name in ("op", "updated", "after", *more)}
    with pytest.raises(TypeError, match=r"columns of public\.t are op, updated, after"):
        RowBatch.of(SCHEMA, **columns)


def test_before_and_mvcc_are_there_only_when_given() -> None:
    batch = rows([Timestamp(1)])
    assert not batch.has_before
    with pytest.raises(KeyError):
        batch.column("mvcc")
    columns = {name: batch.column(name) for name in ("op", "updated", "key", "after")}
    full = RowBatch.of(SCHEMA, before=batch.column("after"), mvcc=batch.column("updated"), **columns)
    assert full.has_before
    assert full.column("mvcc").to_pylist() == [{"wall": 1, "logical": 0}]


def test_repr_shows_no_values() -> None:
    assert repr(rows([Timestamp(1)])) == "RowBatch(public.t v2, 1 rows)"


@pytest.mark.parametrize(
    ("value", "type_", "shown"),
    [
        (7, pa.int64(), 7),
        (2**63 - 1, pa.timestamp("us", "UTC"), "infinity"),
        (-(2**31), pa.date32(), "-infinity"),
        (86_400_000_000, pa.time64("us"), "24:00:00"),
        (2**62, pa.timestamp("us"), str(2**62)),
    ],
)
def test_a_key_can_be_shown_even_when_python_has_no_value_for_it(value: int, type_: pa.DataType, shown: object) -> None:
    integers = pa.array([value], pa.int32() if type_ == pa.date32() else pa.int64())
    (key,) = pa.StructArray.from_arrays([integers.cast(type_)], names=["k"])
    assert shown_key(key) == {"k": shown}


@pytest.mark.parametrize(
    ("bound", "row"),
    [(Timestamp(5), None), (Timestamp(5, 1), 1), (Timestamp(6), 1), (Timestamp(6, 1), 0), (Timestamp(9), 0)],
)
def test_the_first_row_below_a_bound_is_found(bound: Timestamp, row: int | None) -> None:
    assert rows([Timestamp(6), Timestamp(5), Timestamp(5, 3)]).row_below(bound) == row


def test_no_row_of_an_empty_batch_is_below_anything() -> None:
    assert rows([]).row_below(Timestamp(9)) is None
