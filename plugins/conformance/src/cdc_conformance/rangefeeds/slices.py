"""Promises about reading slices: again, elsewhere, and only half."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_conformance.rangefeeds.driver import Feed, Plan
from cdc_conformance.rangefeeds.elsewhere import Elsewhere
from cdc_conformance.rangefeeds.suite import MakeJob, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import Mark, RowBatch

__all__ = ["Reading"]


class Reading(RangefeedSuite):
    def test_a_slice_reads_the_same_again(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A slice that is read a second time, by another instance and after more commits, yields the same rows in the
        same order, and the same marks.

        A step is repeated after a failure, and what a consumer has of it already must be what comes again. A slice ends
        where its step ends, whatever has been written since.
        """
        table = workload.tables[0]
        workload.fill(table, 10)
        feed = open_feed()
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_ in plan.slices:
                once = feed.read(slice_).items
                workload.put(table, 1)
                workload.run(3)
                workload.settle()
                other = feed.open()
                again = feed.read(slice_, rangefeed=other).items
                other.close()
                _assert_same(once, again, "after more commits")

    def test_a_slice_can_be_read_in_another_process(
        self, workload: Workload, open_feed: OpenFeed, make_job: MakeJob
    ) -> None:
        """A slice is read in a process that has nothing but the changefeed and the pickled slice.

        Executors are such processes. What planner and reader share must travel in `Slice.payload`.
        """
        workload.fill(workload.tables[0], 10)
        job = make_job()
        feed = open_feed(job=job)
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_, pickled in zip(plan.slices, plan.pickled, strict=True):
                there = Elsewhere.shared().read(job, pickled)
                _assert_same(feed.read(slice_).items, there, "in another process")

    def test_reading_can_be_given_up(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A slice is given up after its first batch; the same instance can read it again, from its beginning.

        Tasks are killed and tried again, and processes are kept. Nothing of the first attempt may be left.
        """
        workload.fill(workload.tables[0], 10)
        feed = open_feed()
        feed.start()
        for plan in _scan_and_log(feed, workload):
            for slice_ in plan.slices:
                given_up = feed.executor.read(slice_)
                next(given_up, None)
                given_up.close()  # type: ignore[attr-defined]
                other = feed.open()
                whole = feed.read(slice_, rangefeed=other).items
                other.close()
                _assert_same(whole, feed.read(slice_).items, "after a first attempt that was given up")


def _scan_and_log(feed: Feed, workload: Workload) -> Iterator[Plan]:
    """Yield a step of the scan, then one of the log; finish each when it was looked at."""
    plan = feed.next_plan()
    yield plan
    feed.finish(feed.execute(plan))
    feed.scan()
    workload.run(10)
    workload.settle()
    for _ in feed.patiently("a step with the rows of 10 commits does not come"):
        plan = feed.next_plan()
        step = feed.execute(plan)
        if step.changes:
            yield plan
            return
        feed.finish(step)


def _assert_same(one: Sequence[RowBatch | Mark], two: Sequence[RowBatch | Mark], when: str) -> None:
    marks, other = ([item for item in items if isinstance(item, Mark)] for items in (one, two))
    assert marks == other, f"a slice has other marks {when}: {other}, not {marks}"
    rows, again = (
        [row for item in items if isinstance(item, RowBatch) for row in item.batch.to_pylist()] for items in (one, two)
    )
    assert len(rows) == len(again), f"a slice of {len(rows)} rows has {len(again)} {when}"
    wrong = next((place for place, row in enumerate(rows) if row != again[place]), None)
    assert wrong is None, f"row {wrong} of a slice is another {when}: {again[wrong]}, not {rows[wrong]}"
