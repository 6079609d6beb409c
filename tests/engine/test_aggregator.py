from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.scripted import Script
from cdc_testing.written import read, written

from cdc_core import ContractError, RowBatch, Sink, Slice, SliceInfo, SliceReader, SpanMark, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.engine.aggregator import ReaderDiedError
from cdc_core.engine.attempt_config import MaskedError
from cdc_core.engine.packing import FAILED, note
from cdc_core.engine.slices import PlannedSlice
from cdc_core.errors import RetryableSinkError, from_wire
from cdc_core.telemetry.metrics import BATCH_ROWS, COMMIT_LATENCY, FLUSH_SECONDS
from cdc_core.telemetry.tally import Tally


def planned(first: int, last: int, *, lower: int = 1, again: bool = False) -> PlannedSlice:
    return PlannedSlice(
        slice=Slice(lower=Timestamp(lower), payload=(first, last, 1, 2)),
        info=SliceInfo(step=4, index=1, lower=Timestamp(lower)),
        slices=2,
        end={"n": last},
        again=again,
    )


@pytest.fixture
def reader(script: Script) -> SliceReader:
    return Parts(counter_feed(script.directory, batch_rows=10)).open_reader()


@pytest.fixture
def sink(script: Script) -> Sink:
    return Parts(counter_feed(script.directory)).open_sink()


def packed(reader: SliceReader, *, last: int = 100) -> Iterator[pa.RecordBatch]:
    return read(reader, planned(0, last))


def test_a_slice_is_flushed_whole_and_reported_with_its_marks(reader: SliceReader, sink: Sink, script: Script) -> None:
    report = written(sink, packed(reader))
    info = report.planned.info
    assert (info.step, info.index, report.planned.slices, report.planned.end) == (4, 1, 2, {"n": 100})
    assert (report.rows, report.flushed.messages) == (50, 50)
    [mark] = report.marks
    assert (mark.timestamp, mark.resolved) == (Timestamp(100), True)
    [event] = Journal(script.directory).of("rows")
    assert [n for _, n in event[4]] == list(range(1, 101, 2))


def test_batches_flushes_and_the_latency_of_rows_are_counted(reader: SliceReader, sink: Sink) -> None:
    report = written(sink, packed(reader))
    assert report is not None
    counted = Tally(report.counted)
    [batches], [flushes], [latency] = (
        tuple(counted.samples(metric)) for metric in (BATCH_ROWS, FLUSH_SECONDS, COMMIT_LATENCY)
    )
    assert (sum(batches.counts), batches.value) == (5, 50)
    assert sum(flushes.counts) == 1
    assert latency.counts[-1] == 50  # committed in 1970
    assert latency.value == pytest.approx(50 * time.time(), rel=1e-3)


@pytest.mark.parametrize(("task_attempt", "again", "repeated"), [(0, False, 0), (1, False, 50), (0, True, 50)])
def test_the_rows_of_a_slice_that_was_begun_before_are_counted(
    reader: SliceReader, sink: Sink, task_attempt: int, again: bool, repeated: int
) -> None:
    batches = read(reader, planned(0, 100, again=again))
    report = written(sink, batches, task_attempt=task_attempt)
    assert report is not None
    assert (report.rows, report.repeated) == (50, repeated)


def test_a_slice_without_rows_still_carries_its_marks(reader: SliceReader, sink: Sink) -> None:
    report = written(sink, packed(reader, last=0))
    assert report.rows == 0
    assert [mark.timestamp for mark in report.marks] == [Timestamp(0)]


@pytest.mark.parametrize("kept", [0, 1, 3], ids=lambda kept: f"{kept} batches came")
def test_nothing_is_flushed_of_a_slice_whose_reader_died(
    kept: int, reader: SliceReader, sink: Sink, script: Script
) -> None:
    with pytest.raises(ReaderDiedError) as raised:
        written(sink, list(packed(reader))[:kept])
    assert not Journal(script.directory).of("rows")
    told = str(from_wire(str(raised.value)))
    assert ("the last of table" if kept == 3 else "died before its first row") in told
    assert "killed it to free memory" in told


def test_nothing_is_flushed_of_a_slice_whose_reader_failed(reader: SliceReader, sink: Sink, script: Script) -> None:
    batches = [*list(packed(reader))[:3], note(FAILED, {"error": "out of reach"})]
    with pytest.raises(MaskedError, match="out of reach"):
        written(sink, batches)
    assert not Journal(script.directory).of("rows")


def test_no_report_without_a_flush(reader: SliceReader, sink: Sink, script: Script) -> None:
    script.order("flush", "RetryableSinkError busy")
    with pytest.raises(RetryableSinkError, match="busy"):
        written(sink, packed(reader))


def test_rows_after_the_end_are_refused(reader: SliceReader, sink: Sink) -> None:
    batches = list(packed(reader))
    with pytest.raises(ContractError, match="outside of a slice"):
        written(sink, [*batches, batches[1]])


def test_a_rangefeed_that_yields_no_mark_is_named(reader: SliceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    class Markless(type(reader)):  # type: ignore[misc]
        def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
            return (item for item in super().read(slice_) if isinstance(item, RowBatch))

    with pytest.raises(ContractError, match=r"Markless broke its contract: read\(\) must yield a mark"):
        list(packed(Markless(reader.context)))


def test_a_rangefeed_that_yields_neither_rows_nor_marks_is_named(reader: SliceReader) -> None:
    class Sloppy(type(reader)):  # type: ignore[misc]
        def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
            return iter([("counter", 1)])  # type: ignore[list-item]

    with pytest.raises(
        ContractError, match=r"Sloppy broke its contract: read\(\) yielded tuple, neither a RowBatch nor"
    ):
        list(packed(Sloppy(reader.context)))


def test_a_row_that_comes_too_late_is_the_rangefeeds_fault_and_is_not_passed_on(reader: SliceReader) -> None:
    passed: list[pa.RecordBatch] = []
    with pytest.raises(ContractError) as raised:
        passed.extend(read(reader, planned(9, 100, lower=14)))
    assert str(raised.value) == (
        "rangefeed CounterReader broke its contract: the row of table public.counter with key {'id': 11} has"
        " updated 11.0000000000, below 14.0000000000, where its slice begins; a later timestamp may already be resolved"
    )
    assert len(passed) == 1


def test_a_row_above_the_marks_is_the_rangefeeds_fault(reader: SliceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(type(reader)):  # type: ignore[misc]
        def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
            for item in super().read(slice_):
                yield (
                    SpanMark(span=item.span, timestamp=Timestamp(50), resolved=True)
                    if isinstance(item, SpanMark)
                    else item
                )

    with pytest.raises(
        ContractError, match=r"a row of table db.public.counter has updated 99.*, above 50.*, the greatest"
    ):
        list(packed(Hasty(reader.context)))
