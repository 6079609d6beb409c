"""Promises about a source that is out of reach for a while."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import assert_all_there
from cdc_conformance.rangefeeds.suite import Disturbance, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import RetryableError

__all__ = ["Outages"]


class Outages(RangefeedSuite):
    """A source that is out of reach for a while."""

    @requires("disturbance", "the test must cut off the source")
    def test_an_outage_is_a_retryable_error(
        self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance
    ) -> None:
        """While the source is out of reach, `now`, `advance` and `read` raise RetryableError.

        The engine waits and repeats the step. Other errors of `cdc_core` would stop the changefeed, and the engine does
        not know errors of the client library.
        """
        workload.fill(workload.tables[0], 5)
        feed = open_feed().scan()
        workload.put(workload.tables[0], 1)
        plan = feed.next_plan()
        calls: dict[str, Callable[[], object]] = {
            "now": feed.clock.now,
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

    @requires("disturbance", "the test must cut off the source")
    def test_an_outage_loses_no_rows(self, workload: Workload, open_feed: OpenFeed, disturbance: Disturbance) -> None:
        """The source is out of reach in the middle of a step; after a restart from saved progress every row arrives."""
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed().scan()
        for id_ in (1, 2, 3):
            workload.put(table, id_)
            plan = feed.next_plan()
            workload.put(table, 4)
            with disturbance.broken(), suppress(Exception):
                feed.execute(plan)
            feed.restart()
        feed.catch_up()
        assert_all_there(feed.changes, workload.rows)
