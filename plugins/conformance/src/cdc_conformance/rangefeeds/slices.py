"""Promises about reading slices: repeatedly, in another process, and after an abandoned read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing

from cdc_conformance.processes import Peer
from cdc_conformance.rangefeeds.driver import Feed, Plan
from cdc_conformance.rangefeeds.suite import MakeChangefeed, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import RowBatch, Slice, SpanMark
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["Slices"]

_EXECUTOR = Peer()


class Slices(RangefeedSuite):
    """Reading slices: repeatedly, in another process, and after an abandoned read."""

    def test_reading_a_slice_is_repeatable(self, workload: Workload, open_feed: OpenFeed) -> None:
        """Another reader, after more commits, yields the same rows of a slice in the same order, and the same marks.

        After a failure a step is repeated, and must match what consumers have of it already. A slice ends where its
        step ends, whatever was written since.
        """
        table = workload.tables[0]
        workload.fill(table, 10)
        feed = open_feed()
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_ in plan.slices:
                once = feed.read(slice_).items
                workload.put(table, 1)
                workload.run(3, settle=True)
                _assert_same(once, _read_anew(feed, slice_), "after more commits")

    def test_a_slice_can_be_read_in_another_process(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """A process that has only the changefeed and the pickled slice can read the slice.

        Executors are such processes. The planner passes everything that a reader needs in `Slice.payload`.
        """
        workload.fill(workload.tables[0], 10)
        changefeed = make_changefeed()
        feed = open_feed(changefeed=changefeed)
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_, pickled in zip(plan.slices, plan.pickled, strict=True):
                there = _EXECUTOR.call(_read_pickled, changefeed, pickled)
                _assert_same(feed.read(slice_).items, there, "in another process")

    def test_an_abandoned_read_can_be_repeated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A read is abandoned after its first batch and its reader closed; a new reader yields the whole slice.

        Tasks are killed and repeated in the same process. The first read must leave nothing behind.
        """
        workload.fill(workload.tables[0], 10)
        feed = open_feed()
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_ in plan.slices:
                with closing(feed.parts.open_reader()) as reader:
                    abandoned = reader.read(slice_)
                    next(abandoned, None)
                    abandoned.close()  # type: ignore[attr-defined]
                _assert_same(feed.read(slice_).items, _read_anew(feed, slice_), "after an abandoned read")


def _read_pickled(changefeed: ResolvedChangefeed, pickled: bytes) -> list[RowBatch | SpanMark]:
    with closing(changefeed.open_reader()) as reader:
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
