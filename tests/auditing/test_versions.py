"""Versions of rows: on disk by key, and reduced to those that count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core import Column, ColumnType, ConfigError, Kind, Op, RowBatch, TableName, TableSchema, Timestamp
from cdc_core.auditing.comparison import Comparison, Figures, Finding
from cdc_core.auditing.layout import Layout
from cdc_core.auditing.spill import PARTITIONS, Spill
from cdc_core.auditing.versions import reduced

INT = ColumnType(kind=Kind.INT, source="integer", bits=64)
FLOAT = ColumnType(kind=Kind.FLOAT, source="double precision", bits=64)
DATE = ColumnType(kind=Kind.DATE, source="date")
TIME = ColumnType(kind=Kind.TIME, source="time")
TEXT = ColumnType(kind=Kind.STRING, source="text")


def schema(*values: tuple[str, ColumnType], key: tuple[str, ...] = ("id",)) -> TableSchema:
    columns = (Column(name="id", type=INT, nullable=False), *(Column(name=name, type=type_) for name, type_ in values))
    return TableSchema(name=TableName("d", "s", "t"), version=1, columns=columns, primary_key=key)


V = schema(("v", TEXT))


def rows(*versions: tuple[float, int, Any], of: TableSchema = V, unavailable: tuple[int, ...] = ()) -> RowBatch:
    """Return versions, each with its id, time and value; an Op in place of the value is a delete."""
    ids, times, values = zip(*versions, strict=True)
    gone = [value is Op.DELETE for value in values]
    types = [column.type.arrow for column in of.columns]
    columns = [pa.array(ids, types[0])]
    columns += [pa.array([None if value is Op.DELETE else value for value in values], type_) for type_ in types[1:]]
    lacks = [["v"] if place in unavailable else None for place in range(len(ids))]
    return RowBatch.of(
        of,
        op=pa.array([Op.DELETE if each else Op.UPDATE for each in gone], pa.uint8()),
        updated=RowBatch.timestamps(pa.array(times, pa.int64()), pa.array([0] * len(ids), pa.int32())),
        key=RowBatch.struct(of.key_type, columns[:1]),
        after=RowBatch.struct(of.after_type, columns, pa.array(gone)),
        unavailable=pa.array(lacks, pa.list_(pa.string())) if unavailable else None,
    )


def kept(*batches: RowBatch, cut: int | None, layout: Layout | None = None) -> list[tuple[Any, ...]]:
    layout = layout or Layout(schema=V)
    tables = [layout.of(batch, sequence=100 * number) for number, batch in enumerate(batches)]
    found = reduced(tables, layout, cut=None if cut is None else Timestamp(cut))
    assert found is not None
    columns = [found.column(name).to_pylist() for name in ("k0", "wall", "v0", "deleted")]
    return sorted(zip(*columns, strict=True))


def differing(source: list[RowBatch], destination: list[RowBatch], directory: Path, **changes: Any) -> list[Any]:
    layout = Layout(schema=changes.pop("schema", V), backfills=changes.pop("backfills", True))
    spills = [Spill(directory / name, buffer_bytes=1) for name in ("source", "destination")]
    for spill, batches in zip(spills, (source, destination), strict=True):
        for batch in batches:
            spill.add(layout.of(batch, sequence=spill.rows))
        spill.flush()
    figures = Figures()
    arguments = {"cut": Timestamp(10), "figures": figures, "most_shown": 100} | changes
    comparison = Comparison(layout=layout, **arguments)
    return [(each.key["id"], each.finding, each.source) for each in comparison.differences(*spills)]


def test_the_newest_version_up_to_the_cut_and_all_later_ones_count() -> None:
    first = rows((1, 1, "a"), (1, 5, "b"), (1, 11, "c"), (1, 12, "d"), (2, 11, "x"), (3, 2, "y"), (3, 3, Op.DELETE))
    again = rows((1, 1, "a"), (1, 5, "B"))  # a repeat; of equal timestamps the last counts
    assert kept(first, again, cut=10) == [
        (1, 5, "B", False),
        (1, 11, "c", False),
        (1, 12, "d", False),
        (2, 11, "x", False),
        (3, 3, None, True),
    ]
    assert kept(first, cut=None) == [(1, 12, "d", False), (2, 11, "x", False), (3, 3, None, True)]


def test_an_unknown_value_is_that_of_the_version_before_but_not_of_a_deleted_one() -> None:
    batch = rows(
        (1, 1, "a"),
        (1, 2, None),
        (1, 3, None),
        (2, 1, None),
        (3, 1, "a"),
        (3, 2, Op.DELETE),
        (3, 3, None),
        unavailable=(1, 2, 3, 6),
    )
    assert kept(batch, cut=None) == [(1, 3, "a", False), (2, 1, None, False), (3, 3, None, False)]


def test_many_versions_of_a_row_are_reduced_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.auditing.versions._AT_ONCE_BYTES", 1)
    batches = [rows((1, number, f"v{number}"), (2, 5, "x")) for number in range(1, 50)]
    assert kept(*batches, cut=None) == [(1, 49, "v49", False), (2, 5, "x", False)]


def test_every_kind_of_difference_is_found_in_one_partition_and_in_many(tmp_path: Path) -> None:
    source = [rows(*[(number, 5, f"v{number}") for number in range(first, first + 50)]) for first in range(0, 200, 50)]
    source.append(rows((2000, 5, "new")))
    delivered = [(number, 5, f"v{number}") for number in range(200) if number != 7] + [(3000, 5, "old")]
    delivered[100] = (delivered[100][0], 5, "other")
    found = differing(source, [rows(*delivered)], tmp_path / "few")
    assert sorted(found) == [
        (7, Finding.MISSING, {}),
        (101, Finding.DIFFERENT, {"v": "v101"}),
        (2000, Finding.MISSING, {}),
        (3000, Finding.EXTRA, {}),
    ]
    assert sorted(differing(source, [rows(*delivered)], tmp_path / "many", most_bytes=250)) == sorted(found)
    assert list((tmp_path / "many" / "source").glob("*.parts")), "partitions were divided"


def test_a_partition_that_is_only_small_because_it_is_compressed_is_divided(tmp_path: Path) -> None:
    source = [rows(*[(number, 5, "v" * 100_000) for number in range(64)])]
    delivered = [rows(*[(number, 5, "v" * 100_000) for number in range(63)])]
    found = differing(source, delivered, tmp_path / "many", most_bytes=350_000)
    assert found == [(63, Finding.MISSING, {})]
    assert list((tmp_path / "many" / "source").glob("*.parts"))
    assert differing(source, delivered, tmp_path / "few") == found
    assert not list((tmp_path / "few" / "source").glob("*.parts"))


def test_text_and_bytes_of_a_partition_may_exceed_what_32_bits_count() -> None:
    of = schema(("v", TEXT), ("b", ColumnType(kind=Kind.BYTES, source="bytea")))
    columns = [pa.array([1], pa.int64()), pa.array(["a"]), pa.array([b"a"])]
    batch = RowBatch.of(
        of,
        op=pa.array([Op.INSERT], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([5], pa.int64()), pa.array([0], pa.int32())),
        key=RowBatch.struct(of.key_type, columns[:1]),
        after=RowBatch.struct(of.after_type, columns),
    )
    found = Layout(schema=of).of(batch, sequence=0)
    assert [found.schema.field(name).type for name in ("v0", "v1")] == [pa.large_string(), pa.large_binary()]


@pytest.mark.parametrize(
    ("old", "new", "value", "converted"),
    [
        (ColumnType(kind=Kind.BOOL, source="boolean"), INT, True, 7),
        (
            ColumnType(kind=Kind.DECIMAL, source="numeric(8,1)", precision=8, scale=1),
            ColumnType(kind=Kind.DECIMAL, source="numeric(8,3)", precision=8, scale=3),
            "1.5",
            "1.500",
        ),
        (ColumnType(kind=Kind.FLOAT, source="real", bits=32), FLOAT, 0.1, 0.1),
    ],
)
def test_a_value_of_an_earlier_type_is_not_compared_without_a_backfill(
    old: ColumnType, new: ColumnType, value: Any, converted: Any, tmp_path: Path
) -> None:
    """PostgreSQL converts values by rules of its own."""
    present = schema(("v", new))
    source = [rows((1, 5, converted), (2, 5, converted), of=present)]
    delivered = [rows((1, 4, value), of=schema(("v", old))), rows((2, 5, None), of=present)]
    found = differing(source, delivered, tmp_path, schema=present, backfills=False)
    assert found == [(2, Finding.DIFFERENT, {"v": converted})]


def test_labels_that_an_enum_got_leave_its_values_as_they_are(tmp_path: Path) -> None:
    old, new = (
        schema(("v", ColumnType(kind=Kind.ENUM, source="mood", labels=labels))) for labels in (("a",), ("a", "b"))
    )
    source, delivered = [rows((1, 5, "b"), of=new)], [rows((1, 4, "a"), of=old)]
    found = differing(source, delivered, tmp_path, schema=new, backfills=False)
    assert found == [(1, Finding.DIFFERENT, {"v": "b"})]


def test_a_row_may_be_the_same_as_any_version_after_the_cut(tmp_path: Path) -> None:
    source = [rows((1, 5, "a"), (2, 5, "b"), (3, 5, "c"), (5, 5, "e"))]
    delivered = [rows((1, 5, "a"), (1, 12, "z"), (2, 5, "a"), (2, 12, "b"), (2, 13, "c"), (3, 5, "x"), (3, 12, "y"))]
    delivered += [rows((4, 12, "new"), (5, 5, "e"), (5, 12, Op.DELETE), (6, 5, "f"), (6, 12, Op.DELETE), (6, 13, "g"))]
    assert differing(source, delivered, tmp_path) == [(3, Finding.DIFFERENT, {"v": "c"})]


def test_values_without_a_likeness_in_python_are_compared(tmp_path: Path) -> None:
    of = schema(("f", FLOAT), ("v", TEXT))

    def batch(nan: float, text: str) -> RowBatch:
        columns = [pa.array([1, 2], pa.int64()), pa.array([nan, -0.0]), pa.array([text, None])]
        return RowBatch.of(
            of,
            op=pa.array([Op.INSERT] * 2, pa.uint8()),
            updated=RowBatch.timestamps(pa.array([5, 5], pa.int64()), pa.array([0, 0], pa.int32())),
            key=RowBatch.struct(of.key_type, columns[:1]),
            after=RowBatch.struct(of.after_type, columns),
        )

    assert differing([batch(np.nan, "a")], [batch(np.nan, "b")], tmp_path, schema=of) == [
        (1, Finding.DIFFERENT, {"v": "a"})
    ]
    days = schema(("d", DATE))
    infinite = rows((1, 5, 2**31 - 1), of=days)
    assert differing([infinite], [infinite], tmp_path / "days", schema=days) == []
    times = schema(("d", TIME))
    midnight, zero = rows((1, 5, 86_400_000_000), of=times), rows((1, 5, 0), of=times)
    assert differing([midnight], [zero], tmp_path / "times", schema=times) == [
        (1, Finding.DIFFERENT, {"d": "24:00:00"})
    ]


def test_zero_and_minus_zero_are_two_keys_and_nan_is_one(tmp_path: Path) -> None:
    columns = (Column(name="id", type=FLOAT), Column(name="v", type=TEXT))
    floats = TableSchema(name=V.name, version=1, columns=columns, primary_key=("id",))
    source = rows((-0.0, 6, "a"), (-np.nan, 5, "b"), of=floats)
    moved = rows((0.0, 5, "a"), (0.0, 6, Op.DELETE), (-0.0, 6, "a"), (np.nan, 5, "b"), of=floats)
    detached = rows((-0.0, 6, "a"), (0.0, 7, Op.DELETE), (np.nan, 5, "b"), of=floats)
    for number, delivered in enumerate((moved, detached)):
        assert differing([source], [delivered], tmp_path / str(number), schema=floats) == []
    ((key, finding, _),) = differing([source], [moved, rows((0.0, 7, "a"), of=floats)], tmp_path / "x", schema=floats)
    assert (str(key), finding) == ("0.0", Finding.EXTRA)


def test_rows_of_another_key_are_refused() -> None:
    other = schema(("v", TEXT), key=("v",))
    with pytest.raises(ConfigError, match=r"has rows with the key \(id\) at the destination, but its key is now \(v\)"):
        Layout(schema=other).of(rows((1, 1, "a")), sequence=0)


def test_a_spill_keeps_little_in_memory_and_every_version(tmp_path: Path) -> None:
    spill, layout = Spill(tmp_path, buffer_bytes=1 << 20), Layout(schema=V)
    before = pa.total_allocated_bytes()
    most = 0
    for number in range(40):
        spill.add(layout.of(rows(*[(1000 * number + each, 1, "v" * 50) for each in range(1000)]), sequence=spill.rows))
        most = max(most, pa.total_allocated_bytes() - before)
    spill.flush()
    assert most < 8 << 20
    found = [number for part in range(PARTITIONS) for each in spill.read(part) for number in each["k0"].to_pylist()]
    assert sorted(found) == list(range(40_000))
