from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from cdc_conformance.rows import Change
from cdc_conformance.rows import rows as batch_of
from cdc_testing.scripted import TABLE

from cdc_core import Column, ColumnType, ContractError, Kind, Op, RowBatch, Timestamp
from cdc_core.engine import packing
from cdc_core.engine.packing import BEGIN, END, FAILED, ROWS, note, notes, pack, unpack

TEXT = Column(name="text", type=ColumnType(kind=Kind.STRING, source="text"))


def rows(numbers: range) -> RowBatch:
    return batch_of(TABLE, [Change({"id": n, "n": n}, op=Op.UPDATE, updated=Timestamp(n)) for n in numbers])


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [row["n"] for _, value in unpack(batches) for row in value.column("after").to_pylist()]


def test_rows_and_notes_come_back_as_they_were() -> None:
    packed = [note(BEGIN, {"step": 1}), *pack(rows(range(3))), note(END, {"end": "ü"})]
    (begin, first), (middle, batch), (end, last) = unpack(packed)
    assert (begin, first, middle, end, last) == (BEGIN, {"step": 1}, ROWS, END, {"end": "ü"})
    assert batch == rows(range(3))


def test_each_spark_row_is_a_record_batch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TARGET_BYTES", 1000)
    packed = [note(BEGIN, {}), *pack(rows(range(500))), note(END, {})]
    assert [batch.num_rows for batch in packed] == [1] * len(packed)


def test_a_large_batch_is_divided_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TARGET_BYTES", 1000)
    packed = list(pack(rows(range(1003))))
    assert len(packed) > 10
    assert max(batch.nbytes for batch in packed) < 2000 + 3000  # the schema travels with each part
    assert numbers(packed) == list(range(1003))


def test_batches_are_divided_by_size_also_where_the_last_rows_are_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TARGET_BYTES", 10_000)
    schema = dataclasses.replace(TABLE, columns=(*TABLE.columns, TEXT))
    ids = pa.array(range(200), pa.int64())
    texts = pa.array(["x" * (10 if n < 190 else 15_000) for n in range(200)])
    skewed = RowBatch.of(
        schema,
        op=pa.array([Op.UPDATE] * 200, pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0] * 200, pa.int32())),
        key=RowBatch.struct(schema.key_type, [ids]),
        after=RowBatch.struct(schema.after_type, [ids, ids, texts]),
    )
    packed = list(pack(skewed))
    assert max(batch.nbytes for batch in packed) < 20_000 + 5000
    assert numbers(packed) == list(range(200))


def test_rows_survive_being_merged_and_split_by_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TARGET_BYTES", 1000)
    merged = pa.Table.from_batches(list(pack(rows(range(300))))).combine_chunks()
    assert numbers(merged.to_batches()) == list(range(300))
    assert numbers(merged.to_batches(max_chunksize=3)) == list(range(300))


def test_a_batch_without_rows_packs_to_nothing() -> None:
    assert list(pack(rows(range(0)))) == []


def test_a_slice_of_a_batch_packs_only_itself() -> None:
    [packed] = pack(rows(range(100_000)).slice(5, 3))
    assert packed.nbytes < 5000
    assert numbers([packed]) == [5, 6, 7]


def wide(size: int) -> RowBatch:
    """Return one row with a text of *size* bytes."""
    schema = dataclasses.replace(TABLE, columns=(*TABLE.columns, TEXT))
    return batch_of(schema, [Change({"id": 1, "n": 1, "text": "x" * size}, op=Op.UPDATE, updated=Timestamp(1))])


def test_a_large_row_travels_in_pieces() -> None:
    row = wide(50_000_000)
    packed = [*pack(row), *pack(rows(range(3)))]
    assert max(batch.nbytes for batch in packed) < packing.PIECE_BYTES + 1000
    (_, first), (_, second) = unpack(packed)
    assert first == row
    assert second == rows(range(3))


def test_a_large_note_travels_in_pieces() -> None:
    value = {"tables": ["ü" * 1000] * 10_000}
    packed = list(notes(END, value))
    assert max(batch.nbytes for batch in packed) < packing.PIECE_BYTES + 1000
    assert list(unpack(packed)) == [(END, value)]


def test_pieces_survive_being_merged_and_split_by_the_jvm() -> None:
    row = wide(10_000_000)
    merged = pa.Table.from_batches([*pack(rows(range(3))), *pack(row), *pack(row)]).combine_chunks()
    assert [value for _, value in unpack(merged.to_batches(max_chunksize=2))] == [rows(range(3)), row, row]


def test_a_row_whose_pieces_end_too_early_is_not_there() -> None:
    assert list(unpack(list(pack(wide(10_000_000)))[:-1])) == []


def test_pieces_that_are_missing_or_out_of_order_are_refused() -> None:
    head, first, second, third = pack(wide(10_000_000))
    for spoiled in ([head, second, first, third], [head, first, third], [head, first, first], [head, head], [first]):
        with pytest.raises(ContractError, match="piece"):
            list(unpack(spoiled))
    with pytest.raises(ContractError, match="a row of kind 'end' arrived where the next piece was due"):
        list(unpack([head, first, note(END, {})]))


def test_a_reader_can_fail_between_pieces() -> None:
    head, first, *_ = pack(wide(10_000_000))
    assert list(unpack([head, first, note(FAILED, {"error": "x"})])) == [(FAILED, {"error": "x"})]


def test_joining_takes_no_more_than_the_row() -> None:
    packed = list(pack(wide(50_000_000)))
    before = pa.total_allocated_bytes()
    [(_, value)] = unpack(packed)
    assert isinstance(value, RowBatch)
    assert pa.total_allocated_bytes() - before < 51_000_000
