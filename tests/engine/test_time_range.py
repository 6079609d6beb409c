"""The part of the history that is emitted: rows and marks beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from cdc_conformance.rows import Change, rows
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import TABLE, Script
from cdc_testing.written import read

from cdc_core import Op, RowBatch, Slice, SliceInfo, SliceReader, Span, SpanMark, TerminalError, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.engine.packing import END, unpack
from cdc_core.engine.slices import PlannedSlice
from cdc_core.engine.time_range import EVERYTHING, TimeRange


def batch(*updated: tuple[int, int], op: Op = Op.UPDATE) -> RowBatch:
    return rows(TABLE, [Change({"id": n, "n": n}, op=op, updated=Timestamp(*at)) for n, at in enumerate(updated)])


def kept(rows: RowBatch, within: TimeRange) -> Sequence[int]:
    ids: Sequence[int] = within.of_rows(rows, latest=rows.latest()).column("key").field("id").to_pylist()
    return ids


def test_rows_up_to_the_end_are_kept_logical_counters_included() -> None:
    rows = batch((3, 0), (5, 1), (5, 2), (6, 0), (4, 9))
    assert kept(rows, TimeRange(end=Timestamp(5, 1))) == [0, 1, 4]
    assert kept(rows, TimeRange(end=Timestamp(2))) == []
    assert kept(rows, EVERYTHING) == [0, 1, 2, 3, 4]


def test_rows_that_are_all_within_are_not_copied() -> None:
    rows = batch((3, 0), (5, 1))
    assert TimeRange(end=Timestamp(5, 1)).of_rows(rows, latest=rows.latest()) is rows


def test_the_cursor_itself_is_not_emitted() -> None:
    rows = batch((3, 0), (5, 1), (5, 2), (6, 0))
    assert kept(rows, TimeRange(after=Timestamp(5, 1))) == [2, 3]
    assert kept(rows, TimeRange(after=Timestamp(5, 1), end=Timestamp(5, 2))) == [2]
    later = TimeRange(after=Timestamp(2)).of_rows(rows, latest=rows.latest())
    assert later is rows


def test_scanned_rows_may_be_as_of_the_cursor() -> None:
    assert kept(batch((5, 0), (5, 0), op=Op.SCAN), TimeRange(after=Timestamp(5))) == [0, 1]


def test_a_slice_behind_the_cursor_is_not_searched() -> None:
    within = TimeRange(after=Timestamp(5), end=Timestamp(9))
    assert within.beginning_at(Timestamp(5)) is within
    assert within.beginning_at(Timestamp(6)) == TimeRange(end=Timestamp(9))


def test_nothing_is_resolved_before_the_cursor() -> None:
    within = TimeRange(after=Timestamp(5), end=Timestamp(9))
    marks = [SpanMark(span=Span("t"), timestamp=Timestamp(at), resolved=True) for at in (4, 5, 9, 10)]
    found = [(mark.timestamp.wall, mark.resolved) for mark in map(within.of_mark, marks)]
    assert found == [(4, False), (5, True), (9, True), (9, True)]


def test_a_scan_after_the_end_does_not_show_the_table_at_the_end() -> None:
    rows = batch((7, 0), (7, 0), op=Op.SCAN)
    assert kept(rows, TimeRange(end=Timestamp(7))) == [0, 1]
    told = (
        r"^table public.counter was scanned at 7\.0+, which is later than end_time, 6\.0+: its contents "
        r"at that time can no"
    )
    with pytest.raises(TerminalError, match=told):
        kept(rows, TimeRange(end=Timestamp(6)))


def planned(payload: Any) -> PlannedSlice:
    info = SliceInfo(step=1, index=0, lower=Timestamp(1))
    return PlannedSlice(slice=Slice(lower=info.lower, payload=payload), info=info, slices=1, end={})


@pytest.mark.parametrize(("end", "mark"), [(99, 99), (100, 100), (101, 100)])
def test_no_mark_of_a_slice_passes_the_end(end: int, mark: int, script: Script) -> None:
    reader = Parts(counter_feed(script.directory, batch_rows=10)).open_reader()
    found = list(unpack(read(reader, planned((0, 100, 0, 1)), within=TimeRange(end=Timestamp(end)))))
    numbers = [
        n for _, rows in found if isinstance(rows, RowBatch) for n in rows.column("after").field("n").to_pylist()
    ]
    assert numbers == list(range(1, min(end, 100) + 1))
    [marks] = [value.marks for kind, value in found if kind == END]
    assert marks == [SpanMark(span=Span(TABLE.name.full), timestamp=Timestamp(mark), resolved=True)]


def test_a_reader_that_breaks_its_contract_beyond_the_end_is_still_told(script: Script) -> None:
    class Hasty(SliceReader):
        def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
            yield batch((9, 0))
            yield SpanMark(span=Span(TABLE.name.full), timestamp=Timestamp(8), resolved=True)

    reader = Hasty(Parts(counter_feed(script.directory)).rangefeed_context())
    with pytest.raises(Exception, match=r"a row of table db.public.counter has updated 9\.0+, above 8\.0+"):
        list(read(reader, planned(None), within=TimeRange(end=Timestamp(5))))
