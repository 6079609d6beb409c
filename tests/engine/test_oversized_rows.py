"""Rows above max_row_bytes: named, refused, and never half a row in silence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa
import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.scripted import TABLE, Script
from cdc_testing.written import read, written

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, Slice, SliceInfo, SliceReader, Span, SpanMark, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.delivery.bad_rows import StopAtBadRow
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.refused_rows import refusal_for, refused_row
from cdc_core.engine.slices import PlannedSlice
from cdc_core.errors import BadRowError
from cdc_core.unavailable import unavailable_by_column

PLANNED = PlannedSlice(
    slice=Slice(lower=Timestamp(0), payload=None), info=SliceInfo(step=0, index=0, lower=Timestamp(0)), slices=1, end={}
)
WIDE = dataclasses.replace(
    TABLE, columns=(*TABLE.columns, Column(name="text", type=ColumnType(kind=Kind.STRING, source="text")))
)


def rows(sizes: list[int], *, diff: bool = False) -> RowBatch:
    ids = pa.array(range(len(sizes)), pa.int64())
    after = RowBatch.struct(WIDE.after_type, [ids, ids, pa.array(["x" * size for size in sizes])])
    return RowBatch.of(
        WIDE,
        op=pa.array([Op.UPDATE] * len(sizes), pa.uint8()),
        updated=RowBatch.timestamps(pa.array([1] * len(sizes), pa.int64()), pa.array([0] * len(sizes), pa.int32())),
        key=RowBatch.struct(WIDE.key_type, [ids]),
        after=after,
        before=after if diff else None,
    )


class Collected(StopAtBadRow):
    """Keeps the bad rows."""

    def __init__(self) -> None:
        super().__init__({"source": "s", "encode": "e", "sink": "k"})
        self.bad: list[BadRow] = []

    def add(self, bad: BadRow) -> None:
        self.bad.append(bad)


class Given(SliceReader):
    def __init__(self, batch: RowBatch) -> None:
        self.batch = batch

    def check(self) -> None:
        pass

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        yield self.batch
        yield SpanMark(span=Span(WIDE.name.full), timestamp=Timestamp(1), resolved=False)


def packed(batch: RowBatch, limit: int) -> Iterator[pa.RecordBatch]:
    return read(Given(batch), PLANNED, max_row_bytes=limit)


def test_a_row_above_the_limit_ends_the_slice_with_its_key_and_size(script: Script) -> None:
    sink = Parts(counter_feed(script.directory)).open_sink()
    with pytest.raises(BadRowError) as raised:
        written(sink, packed(rows([10, 50_000, 10]), 20_000))
    said = str(raised.value)
    assert "the row of table shop.public.items with key {'id': 1}" in said or "with key {'id': 1}" in said
    assert "it has 50," in said
    assert "more than max_row_bytes (20000)" in said


def test_only_the_rows_above_the_limit_are_refused_and_the_others_come_in_order(script: Script) -> None:
    sink = Parts(counter_feed(script.directory)).open_sink()
    bad_rows = Collected()
    report = written(sink, packed(rows([10, 30_000, 10, 15_000, 30_000, 10]), 20_000), bad_rows=bad_rows)
    assert report is not None
    assert report.rows == 6
    assert [bad.row.shown_key(0) for bad in bad_rows.bad] == [{"id": 1}, {"id": 4}]
    assert {bad.stage for bad in bad_rows.bad} == {"source"}
    [event] = Journal(script.directory).of("rows")
    assert [n for _, n in event[4]] == [0, 2, 3, 5]


class Unchecked(Given):
    unchecked_texts = True


def test_rows_with_texts_that_are_not_utf_8_are_refused_and_the_others_come_in_order(script: Script) -> None:
    given = rows([1] * 5, diff=True)
    texts = pa.array([b"a", b"a\xff", None, b"\xc3", b"\xc3\xa9"]).view(pa.string())
    ids = given.column("key").field("id")
    images = dict.fromkeys(("after", "before"), RowBatch.struct(WIDE.after_type, [ids, ids, texts]))
    columns = {name: given.column(name) for name in given.batch.schema.names}
    reader = Unchecked(RowBatch.of(WIDE, **columns | images))
    bad_rows = Collected()
    sink = Parts(counter_feed(script.directory)).open_sink()
    report = written(sink, read(reader, PLANNED), bad_rows=bad_rows)
    assert report is not None
    assert [(bad.row.shown_key(0), bad.stage) for bad in bad_rows.bad] == [({"id": 1}, "source"), ({"id": 3}, "source")]
    assert [bad.reason.partition(";")[0] for bad in bad_rows.bad] == [
        "column text: its text is not valid UTF-8 at byte 2",
        "column text: its text is not valid UTF-8 at byte 1",
    ]
    assert [n for event in Journal(script.directory).of("rows") for _, n in event[4]] == [0, 2, 4]


def test_a_refused_row_has_its_small_values_and_names_the_large_ones() -> None:
    bad = refused_row(refusal_for(rows([1_000_000], diff=True), "it is large", stage="source"))
    assert unavailable_by_column(bad.row).keys() == {"text"}
    assert bad.row.column("after").to_pylist() == [{"id": 0, "n": 0, "text": None}]
    assert bad.row.column("before").to_pylist() == [None]
    assert bad.row.nbytes < 1000


def test_a_refused_delete_has_its_key() -> None:
    whole = rows([1_000_000], diff=True)
    columns = {name: whole.column(name) for name in whole.batch.schema.names}
    delete = RowBatch.of(WIDE, **columns | {"after": pa.nulls(1, WIDE.after_type)})
    bad = refused_row(refusal_for(delete, "it is large", stage="source"))
    assert not bad.row.has_unavailable
    assert bad.row.shown_key(0) == {"id": 0}
    assert bad.row.nbytes < 1000
