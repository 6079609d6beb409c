"""Promises about letting history go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import versions
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import CdcError, HistoryLostError

__all__ = ["Releasing"]

Forget = Callable[[], None]


class Releasing(RangefeedSuite):
    def test_nothing_but_release_lets_history_go(self, workload: Workload, open_feed: OpenFeed, forget: Forget) -> None:
        """Many steps are read and saved, none is released, and runs come and go; the feed can still begin again at its
        first token.

        Reading and saving are not yet durable progress of everybody who needs it; only the coordinator knows. Look at
        `advance`, `read` and `close`.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed()
        feed.start()
        feed.scan(release=False)
        feed.catch_up(release=False)
        begun = len(workload.history)
        first = feed.progress
        for _ in range(3):
            workload.run(5)
            workload.settle()
            feed.catch_up(release=False)
            forget()
        feed.restart()
        workload.settle()
        feed.catch_up(release=False)
        forget()
        again = len(feed.changes)
        feed.restart(first)
        feed.catch_up(release=False)
        _assert_versions(feed, workload, since=begun, arrived=again)

    def test_release_may_be_skipped_repeated_and_late(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """`release` is skipped for a step, called twice, and called with a token older than the last; none of it fails
        or loses anything.

        The coordinator calls it after it has saved, dies in between, and knows nothing of other runs.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed()
        feed.start()
        feed.scan()
        begun = len(feed.changes)
        commits = len(workload.history)
        for _ in range(2):
            workload.run(4)
            workload.settle()
            feed.catch_up(release=False)
        late, newest = feed.saves[1].token, feed.progress.token
        for token in (newest, newest, late, newest):
            feed.coordinator.release(token)
            forget()
        workload.run(4)
        workload.settle()
        feed.restart()
        feed.catch_up()
        _assert_versions(feed, workload, since=commits, arrived=begun)

    def test_what_follows_a_released_token_is_kept(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """Commits happen after a step was planned; then its end is released, and the run killed. A run from that token
        reads them.

        `release` lets go what lies *before* the token, and not what is there by now.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed()
        feed.start()
        feed.scan()
        workload.run(5)
        workload.settle()
        feed.catch_up()
        begun, commits = len(feed.changes), len(workload.history)
        workload.run(3)
        workload.settle()
        plan = feed.next_plan()
        workload.run(3)
        workload.settle()
        feed.finish(feed.execute(plan))
        forget()
        feed.restart()
        workload.settle()
        feed.catch_up()
        _assert_versions(feed, workload, since=commits, arrived=begun)

    def test_history_that_is_gone_is_never_silently_missing(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """A run begins at a token older than what was released: a HistoryLostError says so, or all of it comes.

        Anything else is a gap that nobody hears of.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        begun, old = len(workload.history), feed.progress
        for _ in range(3):
            workload.run(4)
            workload.settle()
            feed.catch_up()
            forget()
        workload.settle()
        arrived = len(feed.changes)
        try:
            feed.restart(old)
            feed.catch_up()
        except HistoryLostError:
            return
        except Exception as error:
            pytest.fail(f"lost history should be a HistoryLostError, not {type(error).__name__}: {error}")
        _assert_versions(feed, workload, since=begun, arrived=arrived)

    @requires("forgets", "the source must forget what it may when the test asks for it")
    def test_released_history_is_let_go(self, workload: Workload, open_feed: OpenFeed, forget: Forget) -> None:
        """Steps are read, saved and released; then the source has no more of what they read: a run that begins at a
        token from before them does not get it.

        A source that keeps everything for a changefeed which has long read it fills its disk. Look at a `release` that
        does nothing, or that speaks to another slot, stream or consumer than the one that was created.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed()
        feed.start()
        feed.scan()
        feed.catch_up()
        begun, old = len(workload.history), feed.progress
        for _ in range(3):
            workload.run(4)
            workload.settle()
            feed.catch_up()
        workload.settle()
        forget()
        arrived = len(feed.changes)
        try:
            feed.restart(old)
            feed.catch_up()
        except CdcError:
            return
        gone = _gone(feed, workload, since=begun, arrived=arrived)
        assert gone, "all that was committed was read, saved and released, and yet the source has the whole of it still"

    def test_changefeeds_of_one_source_do_not_disturb_each_other(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """Two changefeeds watch the same tables; one runs ahead, releases and is dropped, and the other loses nothing.

        What a changefeed creates, releases and drops on the source is its own. Look at names of slots, streams and
        publications that lack `RangefeedContext.feed_id`.
        """
        workload.put(workload.tables[1], 91)
        behind, ahead = open_feed(), open_feed()
        for feed in (behind, ahead):
            feed.start()
            feed.scan()
            feed.catch_up()
        begun, arrived = len(workload.history), len(behind.changes)
        for _ in range(3):
            workload.run(4)
            workload.settle()
            ahead.catch_up()
            forget()
        ahead.close()
        ahead.drop()
        forget()
        workload.settle()
        try:
            behind.restart()
            behind.catch_up()
        except CdcError as error:
            pytest.fail(f"another changefeed ran ahead and was dropped, and then this one failed: {error}")
        _assert_versions(behind, workload, since=begun, arrived=arrived)


def _assert_versions(feed: Feed, workload: Workload, *, since: int, arrived: int) -> None:
    """See that all that was committed from number *since* on is among the changes from number *arrived* on."""
    gone = _gone(feed, workload, since=since, arrived=arrived)
    assert not gone, gone


def _gone(feed: Feed, workload: Workload, *, since: int, arrived: int) -> str:
    """Say what was committed from number *since* on and is not among the changes from number *arrived* on."""
    found = versions(feed.changes[arrived:])
    for key, rows in workload.history.versions(since).items():
        expected = [None if row is None else row["n"] for row in rows]
        there = found.get(key, [])
        missing = [n for n in expected if n not in there]
        if missing:
            return f"of row {key} the versions {missing} are gone; after the restart there came {there}"
    return ""
