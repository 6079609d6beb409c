"""Promises about the end: closing, dropping, and outages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import newest
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.resources import Resources
from cdc_conformance.rangefeeds.suite import Disturbance, MakeJob, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import RetryableError

__all__ = ["Leaving"]


class Leaving(RangefeedSuite):
    def test_close_may_be_called_twice(self, workload: Workload, open_feed: OpenFeed, make_job: MakeJob) -> None:
        """`close` may be called again, and on an instance that was never used."""
        unused = make_job().open_rangefeed()
        unused.close()
        unused.close()
        feed = open_feed()
        feed.start()
        workload.run(3)
        workload.settle()
        feed.catch_up()
        feed.close()
        feed.close()

    def test_nothing_stays_open_after_close(self, workload: Workload, open_feed: OpenFeed) -> None:
        """After `close` the process has no more files, sockets and threads than before, also when a slice was given up.

        Runs come and go in one process, on a server with a limit on connections.
        """
        workload.fill(workload.tables[0], 5)

        def run() -> Feed:
            feed = open_feed()
            feed.start()
            feed.scan()
            workload.put(workload.tables[0], 1)
            plan = feed.next_plan()
            next(feed.executor.read(plan.slices[0]), None)
            feed.catch_up()
            feed.close()
            return feed

        run()
        before = Resources.now()
        feed = run()
        more = ""
        for _ in feed.patiently(f"after close() there is still open: {more}"):
            more = before.more()
            if not more:
                break

    def test_drop_may_be_repeated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`drop` works on a changefeed that has run, a second time, and on one that never has.

        A cancellation that was interrupted is repeated.
        """
        never = open_feed()
        never.drop()
        feed = open_feed()
        feed.start()
        workload.run(3)
        workload.settle()
        feed.catch_up()
        feed.close()
        feed.drop()
        feed.drop()

    @requires("inspection", "it must be seen what was created")
    def test_drop_removes_all_that_was_created(
        self, workload: Workload, open_feed: OpenFeed, created: Callable[[], object]
    ) -> None:
        """After `drop` the source is as it was before the changefeed's first start.

        What is left keeps history, and fills the disk of the database.
        """
        before = created()
        feed = open_feed()
        feed.start()
        feed.step()
        workload.run(3)
        feed.step()
        assert created() != before, "a running changefeed created nothing; does the fixture `created` see it?"
        feed.close()
        feed.drop()
        assert created() == before, f"after drop() {created()} is there, before the start it was {before}"

    @requires("disturbance", "the source must be out of reach for a while")
    def test_an_outage_is_a_retryable_error(
        self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance
    ) -> None:
        """While the source is out of reach, planning, reading and the clock raise a RetryableError.

        The engine waits and tries again. Any other error of the tree would end the changefeed; one of the client
        library says nothing that the engine understands.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed()
        feed.start()
        feed.scan()
        workload.put(workload.tables[0], 1)
        plan = feed.next_plan()
        calls: dict[str, Callable[[], object]] = {
            "now": feed.driver.now,
            "advance": lambda: feed.planner.advance(feed.progress.token, after=feed.progress.latest, limit=feed.limit),
            "read": lambda: feed.read(plan.slices[0]),
        }
        with disturbance.broken():
            for name, call in calls.items():
                try:
                    call()
                except RetryableError:
                    continue
                except Exception as error:
                    pytest.fail(f"{name}() raised {type(error).__name__}, not a RetryableError: {error}")
                pytest.fail(f"{name}() raised nothing while the source was out of reach")

    @requires("disturbance", "the source must be out of reach for a while")
    def test_nothing_is_lost_over_an_outage(
        self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance
    ) -> None:
        """The source is out of reach in the middle of a step; after a restart from what was saved all arrives."""
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed()
        feed.start()
        feed.scan()
        for id_ in (1, 2, 3):
            workload.put(table, id_)
            plan = feed.next_plan()
            workload.put(table, 4)
            with disturbance.broken(), suppress(Exception):
                feed.execute(plan)
            feed.restart()
        feed.catch_up()
        found = newest(feed.changes)
        for key, row in workload.rows.items():
            arrived = found.get(key)
            n = None if arrived is None else arrived.n
            assert n == row["n"], f"row {key} is at version {row['n']}, but the newest that arrived is {arrived}"
