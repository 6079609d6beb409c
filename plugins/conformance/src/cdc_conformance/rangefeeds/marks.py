"""Promises about span marks, resolved timestamps and the source's clock."""

from __future__ import annotations

import time

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import RowBatch

_CALLS, _SLOW_S = 50, 0.1
"""How often an idle planner is called, and how long a step must take not to keep the engine busy."""


class Marks(RangefeedSuite):
    """Span marks, resolved timestamps and the source's clock."""

    def test_span_marks_follow_the_rows_of_their_slice(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`read` yields all rows of a slice, then at least one mark: one for each span that the slice advances.

        A mark covers the rows before it. Rows after it would not be covered.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        names = {schema.name.full for schema in feed.rangefeed.schemas()}
        feed.scan()
        workload.run(10, settle=True)
        feed.catch_up()
        for step in feed.steps:
            for reading in step.readings:
                kinds = ["row" if isinstance(item, RowBatch) else "mark" for item in reading.items]
                assert reading.marks, f"a slice of step {step.number} has no mark"
                assert kinds == sorted(kinds, reverse=True), f"rows follow a mark in step {step.number}: {kinds}"
                for mark in reading.marks:
                    assert mark.span.table in names, f"a mark is for {mark.span}, but the tables are {sorted(names)}"

    def test_nothing_is_resolved_before_the_scan_is_complete(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """While a table is still being scanned, there is no resolved timestamp for all tables together.

        A resolved timestamp tells consumers that they have every row as of that time, but some are still missing. If
        this fails, look at marks for a whole table of which only a part was read.
        """
        first, second = workload.tables
        workload.fill(first, 3)
        workload.fill(second, many_rows // 2, note="x" * 200)
        feed = open_feed(bytes_=16_000, start=True)
        for _ in feed.patiently("the initial scan is not complete"):
            if not feed.scanning:
                break
            workload.put(first, 1)
            feed.step()
            if feed.scanning:
                progress = feed.rangefeed.scan_progress(feed.progress.token)
                assert not feed.resolved, f"{feed.resolved} is resolved, but the scan is at {progress}"
        feed.catch_up()

    def test_an_idle_source_keeps_resolving(self, workload: Workload, open_feed: OpenFeed) -> None:
        """While nothing is written, the resolved timestamp keeps rising.

        Otherwise consumers that wait for a timestamp wait forever. The end of a step holds the source's clock.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed().scan()
        feed.catch_up()
        for _ in range(3):
            known = feed.resolved
            what = f"on an idle source, the resolved timestamp stays at {known}"
            feed.steps_until(lambda known=known: feed.resolved > known, what=what)  # type: ignore[misc]

    def test_advance_returns_its_start_when_idle(self, workload: Workload, open_feed: OpenFeed) -> None:
        """While there is nothing to do, `advance` returns a token that equals its start.

        The engine calls it many times a second: a planner that always returns a step keeps the engine and the sink
        busy. A planner with slow steps may return one each time, because the source's clock moves meanwhile.
        """
        workload.put(workload.tables[0], 1)
        feed = open_feed().scan()
        feed.catch_up()
        begun = time.monotonic()
        idle = any(feed.step() is None for _ in range(_CALLS))
        took_s = time.monotonic() - begun
        assert idle or took_s > _CALLS * _SLOW_S, (
            f"advance() was called {_CALLS} times on an idle source and always returned a step, {_CALLS} steps in "
            f"{took_s:.1f} s"
        )

    @requires("multiple_slices", "a step must have several slices")
    def test_no_key_is_in_two_slices_of_a_step(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """All rows of a key in a step are in one slice.

        The slices of a step are read at the same time, so rows of a key in two slices would reach the sink in any
        order.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 100)
        feed = open_feed(parallelism=4).scan()
        for _ in range(3):
            workload.run(10, settle=True)
            feed.catch_up()
        several = max(len(step.readings) for step in feed.steps)
        assert several > 1, f"no step of the scan of {many_rows} rows for 4 tasks had several slices"
        for step in feed.steps:
            home: dict[object, int] = {}
            for change in step.changes:
                known = home.setdefault(change.row_key, change.slice)
                assert known == change.slice, f"slices {known} and {change.slice} have rows of one key: {change}"
