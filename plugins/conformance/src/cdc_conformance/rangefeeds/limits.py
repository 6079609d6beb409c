"""Promises about the size of steps, slices and batches."""

from __future__ import annotations

import random

from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload

__all__ = ["Limits"]

_SLACK = 3
"""A limit is an estimate: a step may exceed it by this factor, and by one transaction."""
_SLICE_BYTES = 100_000


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

    def test_log_steps_obey_the_byte_limit(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A backlog of many more bytes than `StepLimit.bytes` is read in many steps, even if it has few rows."""
        table = workload.tables[0]
        workload.put(workload.tables[1], 1)
        feed = open_feed(bytes_=40_000).scan()
        feed.catch_up()
        for id_ in range(1, 31):
            workload.put(table, id_, note=random.Random(id_).randbytes(5000).hex())  # not compressible
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

    def test_slices_are_small(self, workload: Workload, open_feed: OpenFeed, many_rows: int) -> None:
        """A pickled slice has less than 100 kB, whatever its number of rows.

        Spark's scheduler sends it with every task. A slice says where rows are; it does not hold them.
        """
        table = workload.tables[0]
        workload.fill(table, many_rows, note="x" * 200)
        feed = open_feed(parallelism=1).scan()
        workload.fill(table, many_rows, note="y" * 200)
        feed.catch_up()
        largest = max(len(pickled) for step in feed.steps for pickled in step.plan.pickled)
        assert largest < _SLICE_BYTES, f"a pickled slice has {largest} bytes, the limit is {_SLICE_BYTES}"
