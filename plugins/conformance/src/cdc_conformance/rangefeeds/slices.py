"""Promises about slices: their size, and reading them repeatedly, in another process, and after an abandoned read."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import closing

from cdc_conformance.processes import Peer
from cdc_conformance.rangefeeds.driver import Feed, Plan, Step
from cdc_conformance.rangefeeds.suite import MakeChangefeed, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import RowBatch, Slice, SpanMark
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed

_SLACK = 3
"""A limit is an estimate: a step may exceed it by this factor, and by one transaction."""
_SLICE_BYTES = 100_000
_EXECUTOR = Peer()


class Limits(RangefeedSuite):
    """The size of steps, slices and batches."""

    def test_log_steps_obey_the_row_limit(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """A backlog of many more rows than `StepLimit.rows` is read in many steps.

        After a failure a whole step is repeated, and a sink must be able to hold a whole step.
        """
        table = workload.tables[0]
        workload.put(workload.tables[1], 1)
        limit = many_rows // 10
        feed = open_feed(rows=limit).scan()
        feed.catch_up()
        for first in range(1, many_rows + 1, limit // 4):
            workload.fill(table, limit // 4, first=first)
        begun = len(feed.steps)
        feed.catch_up()
        sizes = [len(step.changes) for step in feed.steps[begun:]]
        most = limit * _SLACK
        assert sum(sizes) >= many_rows, f"{many_rows} rows were written, but {sum(sizes)} arrived"
        assert max(sizes) <= most, f"a step may hold about {limit} rows, but one held {max(sizes)}: {sizes}"

    def test_log_steps_obey_the_byte_limit(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """A backlog of many more bytes than `StepLimit.bytes` is read in many steps, even if it has few rows."""
        workload.put(workload.tables[1], 1)
        feed = open_feed(bytes_=40_000).scan()
        feed.catch_up()
        for id_ in range(1, 31):
            workload.put(first_table, id_, note=random.Random(id_).randbytes(5000).hex())  # not compressible
        begun = len(feed.steps)
        feed.catch_up()
        sizes = [
            sum(len(change.after["note"]) for change in step.changes if change.after) for step in feed.steps[begun:]
        ]
        assert sum(sizes) >= 300_000, f"300,000 bytes were written, but {sum(sizes)} arrived"
        assert max(sizes) <= 40_000 * _SLACK, f"a step may hold about 40,000 bytes, but one held {max(sizes)}"

    def test_scan_steps_obey_the_row_limit(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """The initial scan of a table with many more rows than `StepLimit.rows` takes many steps.

        The limit holds for all slices of a step together. A scan in a single step would start over after every failure.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 100)
        limit = many_rows // 10
        feed = open_feed(rows=limit).scan()
        sizes = [len(step.changes) for step in feed.steps]
        most = limit * _SLACK
        assert sum(sizes) >= many_rows, f"the table has {many_rows} rows, but {sum(sizes)} were scanned"
        assert max(sizes) <= most, f"a step may hold about {limit} rows, but one held {max(sizes)}: {sizes}"

    def test_large_slices_come_in_many_batches(
        self, workload: Workload, open_feed: OpenFeed, large_slice_bytes: int
    ) -> None:
        """A slice that does not fit in one batch is yielded in several, from the scan and from the log.

        The reading process holds one batch at a time: its memory must not grow with the slice.
        """
        scanned, logged = workload.tables
        for id_ in range(1, 7):
            workload.put(scanned, id_, note=f"{id_:06}" * (large_slice_bytes // 36))
        feed = open_feed(bytes_=1 << 30, parallelism=1).scan()
        for id_ in range(1, 7):
            workload.put(logged, id_, note=f"{id_:06}" * (large_slice_bytes // 36))
        feed.catch_up()
        for kind, table in (("scan", scanned), ("log", logged)):
            sizes = [
                batch.nbytes for batch in feed.batches if batch.schema.name.table == table.rpartition(".")[2].strip('"')
            ]
            assert sum(sizes) >= large_slice_bytes, f"the {kind} must hold {large_slice_bytes} bytes: {sizes}"
            assert max(sizes) <= sum(sizes) * 0.6, f"more than half of the {kind} came in one batch: {sizes}"

    def test_slices_are_small(self, workload: Workload, open_feed: OpenFeed, many_rows: int, first_table: str) -> None:
        """A pickled slice has less than 100 kB, whatever its number of rows.

        Spark's scheduler sends it with every task. A slice says where rows are; it does not hold them.
        """
        workload.fill(first_table, many_rows, note="x" * 200)
        feed = open_feed(parallelism=1).scan()
        workload.fill(first_table, many_rows, note="y" * 200)
        feed.catch_up()
        largest = max(len(pickled) for step in feed.steps for pickled in step.plan.pickled)
        assert largest < _SLICE_BYTES, f"a pickled slice has {largest} bytes, the limit is {_SLICE_BYTES}"


class Slices(RangefeedSuite):
    """Reading slices: repeatedly, in another process, and after an abandoned read."""

    def test_a_slice_can_be_read_in_another_process(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """A process that has only the changefeed and the pickled slice can read the slice.

        Executors are such processes. The planner passes everything that a reader needs in `Slice.payload`.
        """
        workload.fill(workload.tables[0], 10)
        changefeed = make_changefeed()
        feed = open_feed(changefeed=changefeed, start=True)
        for plan in _scan_and_log(feed, workload):
            for slice_, pickled in zip(plan.slices, plan.pickled, strict=True):
                there = _EXECUTOR.call(_read_pickled, changefeed, pickled)
                _assert_same(feed.read(slice_).items, there, "in another process")

    def test_an_abandoned_read_can_be_repeated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A read is abandoned after its first batch and its reader closed; a new reader yields the whole slice.

        Tasks are killed and repeated in the same process. The first read must leave nothing behind.
        """
        workload.fill(workload.tables[0], 10)
        feed = open_feed(start=True)
        for plan in _scan_and_log(feed, workload):
            for slice_ in plan.slices:
                with closing(feed.parts.open_reader()) as reader:
                    abandoned = reader.read(slice_)
                    next(abandoned, None)
                    abandoned.close()  # type: ignore[attr-defined]
                _assert_same(feed.read(slice_).items, _read_anew(feed, slice_), "after an abandoned read")


def assert_read_again(feed: Feed, step: Step) -> None:
    """Assert that another reader yields the same for each slice of *step*, whatever was committed since."""
    with closing(feed.parts.open_reader()) as reader:
        for reading in step.readings:
            _assert_same(reading.items, feed.read(reading.slice, reader=reader).items, "after more commits")


def _read_pickled(changefeed: ResolvedChangefeed, pickled: bytes) -> list[RowBatch | SpanMark]:
    with closing(Parts(changefeed).open_reader()) as reader:
        return list(reader.read(pickle.loads(pickled)))


def _read_anew(feed: Feed, slice_: Slice) -> Sequence[RowBatch | SpanMark]:
    """Return the items that a new reader yields for *slice_*."""
    with closing(feed.parts.open_reader()) as reader:
        return feed.read(slice_, reader=reader).items


def _scan_and_log(feed: Feed, workload: Workload) -> Iterator[Plan]:
    """Yield a step of the scan, and then one of the log that has rows."""
    plan = feed.next_plan()
    yield plan
    feed.finish(feed.execute(plan))
    feed.scan()
    workload.run(10, settle=True)
    for _ in feed.patiently("no step has the rows of 10 commits"):
        plan = feed.next_plan()
        step = feed.execute(plan)
        if step.changes:
            yield plan
            return
        feed.finish(step)


def _assert_same(one: Sequence[RowBatch | SpanMark], two: Sequence[RowBatch | SpanMark], when: str) -> None:
    marks, other = ([item for item in items if isinstance(item, SpanMark)] for items in (one, two))
    assert marks == other, f"the marks of a slice differ {when}: {other}, not {marks}"
    rows, again = (
        [row for item in items if isinstance(item, RowBatch) for row in item.batch.to_pylist()] for items in (one, two)
    )
    assert len(rows) == len(again), f"a slice of {len(rows)} rows has {len(again)} rows {when}"
    wrong = next((place for place, row in enumerate(rows) if row != again[place]), None)
    assert wrong is None, f"row {wrong} of a slice differs {when}: {again[wrong]}, not {rows[wrong]}"
