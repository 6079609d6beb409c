"""Promises about size: steps, slices, batches."""

from __future__ import annotations

import random

from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload

__all__ = ["Limits"]

_SLACK = 3
"""A limit is an estimate; a step may hold so many times what it says, and one transaction more."""
_SLICE_BYTES = 100_000


class Limits(RangefeedSuite):
    def test_a_step_of_the_log_has_about_the_rows_it_may(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """A backlog of many more rows than `StepLimit.rows` is read in many steps.

        A step is what is repeated after a failure, and what a sink must be able to hold.
        """
        table = workload.tables[0]
        workload.put(workload.tables[1], 1)
        limit = many_rows // 10
        feed = open_feed(rows=limit)
        feed.start()
        feed.scan()
        feed.catch_up()
        for first in range(1, many_rows + 1, limit // 4):
            workload.fill(table, limit // 4, first=first)
        begun = len(feed.steps)
        feed.catch_up()
        sizes = [len(step.changes) for step in feed.steps[begun:]]
        most = limit * _SLACK
        assert sum(sizes) >= many_rows, f"{many_rows} rows were written, and {sum(sizes)} arrived"
        assert max(sizes) <= most, f"a step may hold about {limit} rows, and one held {max(sizes)}: {sizes}"

    def test_a_step_of_the_log_has_about_the_bytes_it_may(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A backlog of many more bytes than `StepLimit.bytes` is read in many steps, however few rows it has."""
        table = workload.tables[0]
        workload.put(workload.tables[1], 1)
        feed = open_feed(bytes_=40_000)
        feed.start()
        feed.scan()
        feed.catch_up()
        for id_ in range(1, 31):
            workload.put(table, id_, note=random.Random(id_).randbytes(5000).hex())  # nothing to be compressed
        begun = len(feed.steps)
        feed.catch_up()
        sizes = [
            sum(len(change.after["note"]) for change in step.changes if change.after) for step in feed.steps[begun:]
        ]
        assert sum(sizes) >= 300_000, f"300,000 bytes were written, and {sum(sizes)} arrived"
        assert max(sizes) <= 40_000 * _SLACK, f"a step may hold about 40,000 bytes, and one held {max(sizes)}"

    def test_a_step_of_the_scan_has_about_the_rows_it_may(
        self, workload: Workload, open_feed: OpenFeed, many_rows: int
    ) -> None:
        """The initial scan of a table with many more rows than `StepLimit.rows` takes many steps.

        All its slices together are one step. A scan in one step would have to begin anew after every failure.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 100)
        limit = many_rows // 10
        feed = open_feed(rows=limit)
        feed.start()
        feed.scan()
        sizes = [len(step.changes) for step in feed.steps]
        most = limit * _SLACK
        assert sum(sizes) >= many_rows, f"the table has {many_rows} rows, and {sum(sizes)} were scanned"
        assert max(sizes) <= most, f"a step may hold about {limit} rows, and one held {max(sizes)}: {sizes}"

    def test_a_large_slice_comes_in_many_batches(
        self, workload: Workload, open_feed: OpenFeed, large_slice_bytes: int
    ) -> None:
        """A slice that is larger than what fits into a batch is yielded in several, in the scan and in the log.

        The process that reads it holds one batch at a time: its memory must not grow with the slice.
        """
        scanned, logged = workload.tables
        for id_ in range(1, 7):
            workload.put(scanned, id_, note=f"{id_:06}" * (large_slice_bytes // 36))
        feed = open_feed(bytes_=1 << 30, parallelism=1)
        feed.start()
        feed.scan()
        for id_ in range(1, 7):
            workload.put(logged, id_, note=f"{id_:06}" * (large_slice_bytes // 36))
        feed.catch_up()
        for kind, table in (("scan", scanned), ("log", logged)):
            sizes = [
                batch.nbytes
                for step in feed.steps
                for reading in step.readings
                for batch in reading.batches
                if batch.schema.name.table == table.rpartition(".")[2].strip('"')
            ]
            assert sum(sizes) >= large_slice_bytes, f"the {kind} should hold {large_slice_bytes} bytes: {sizes}"
            assert max(sizes) <= sum(sizes) * 0.6, f"more than half of the {kind}'s rows came in one batch: {sizes}"

    def test_slices_are_small(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """A pickled slice has less than 100 kB, however many rows it stands for.

        It travels through Spark's scheduler with every task. It says where rows are, and does not hold them.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 200)
        feed = open_feed(parallelism=1)
        feed.start()
        feed.scan()
        workload.fill(table, many_rows, note="y" * 200)
        feed.catch_up()
        largest = max(len(pickled) for step in feed.steps for pickled in step.plan.pickled)
        assert largest < _SLICE_BYTES, f"a slice has {largest} bytes when it is pickled"
