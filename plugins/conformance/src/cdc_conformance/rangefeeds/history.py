"""Promises about the history that the source retains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import versions
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import MakeChangefeed, OpenFeed, RangefeedSuite
from cdc_conformance.side_effects import failure_of
from cdc_conformance.workload import Workload
from cdc_core import CdcError, ConfigError, HistoryLostError, Timestamp

Cursor = Callable[[], Mapping[str, Any]]
Forget = Callable[[], None]


class History(RangefeedSuite):
    """The history that the source retains."""

    def test_only_release_discards_history(self, workload: Workload, open_feed: OpenFeed, forget: Forget) -> None:
        """After many steps and restarts without `release`, the feed can start again from its first token.

        Only the coordinator knows what is durable. If this fails, look at `advance`, `read` and `close`.
        """
        workload.put(workload.tables[1], 91)
        feed = open_feed().scan(release=False)
        feed.catch_up(release=False)
        begun = len(workload.history)
        first = feed.progress
        for _ in range(3):
            workload.run(5, settle=True)
            feed.catch_up(release=False)
            forget()
        feed.restart()
        feed.catch_up(release=False)
        forget()
        again = len(feed.changes)
        feed.restart(first)
        feed.catch_up(release=False)
        _assert_versions(feed, workload, since=begun, arrived=again)

    def test_release_may_be_skipped_repeated_and_late(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """`release` may be skipped, called twice, and called with an older token, without an error or lost rows.

        The coordinator calls it after saving. It may die in between, and does not know what other attempts released.
        """
        feed = _scanned(workload, open_feed)
        begun = len(feed.changes)
        commits = len(workload.history)
        for _ in range(2):
            workload.run(4, settle=True)
            feed.catch_up(release=False)
        late, newest = feed.saves[1].token, feed.progress.token
        for token in (newest, newest, late, newest):
            feed.history.release(token)
            forget()
        workload.run(4, settle=True)
        feed.restart()
        feed.catch_up()
        _assert_versions(feed, workload, since=commits, arrived=begun)

    def test_history_after_a_released_token_is_kept(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """Commits that follow a planned step are kept when the step's end is released; the next attempt reads them.

        `release` discards the history *before* the token, not everything up to now.
        """
        feed = _scanned(workload, open_feed)
        workload.run(5, settle=True)
        feed.catch_up()
        begun, commits = len(feed.changes), len(workload.history)
        workload.run(3, settle=True)
        plan = feed.next_plan()
        workload.run(3, settle=True)
        feed.finish(feed.execute(plan))
        forget()
        feed.restart()
        feed.catch_up()
        _assert_versions(feed, workload, since=commits, arrived=begun)

    def test_lost_history_is_an_error(self, workload: Workload, open_feed: OpenFeed, forget: Forget) -> None:
        """An attempt from a token older than the released one raises HistoryLostError, or reads everything.

        Anything else is a silent gap.
        """
        error, gone = _from_an_old_token(workload, open_feed, forget)
        if error is None:
            assert not gone, gone
        else:
            assert isinstance(error, HistoryLostError), f"lost history must raise HistoryLostError, not {error!r}"

    @requires("forgets", "the source must discard released history when the test asks for it")
    def test_released_history_is_discarded(self, workload: Workload, open_feed: OpenFeed, forget: Forget) -> None:
        """After steps are read, saved and released, an attempt from an older token no longer gets their rows.

        A source that keeps history forever fills its disk. If this fails, look at a `release` that does nothing, or
        that names a different slot, stream or consumer from the one that was created.
        """
        error, gone = _from_an_old_token(workload, open_feed, forget)
        if error is None:
            assert gone, "everything was read, saved and released, but the source still has all of it"
        elif not isinstance(error, CdcError):
            raise error

    def test_changefeeds_on_one_source_are_independent(
        self, workload: Workload, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """Two changefeeds watch the same tables; one is ahead, releases and is dropped, and the other loses no rows.

        A changefeed creates, releases and drops only its own objects. If this fails, look for names of slots, streams
        and publications without `RangefeedContext.feed_id`. The two have the same name, unless the source refuses that.
        """
        workload.put(workload.tables[1], 91)
        behind, ahead = open_feed(name="conformance"), open_feed(name="conformance")
        behind.start()
        try:
            ahead.start()
        except ConfigError:
            ahead = open_feed(start=True)
        for feed in (behind, ahead):
            feed.scan()
            feed.catch_up()
        begun, arrived = len(workload.history), len(behind.changes)
        _go_on(ahead, workload, forget)
        ahead.close()
        ahead.drop()
        forget()
        try:
            behind.restart()
            behind.catch_up()
        except CdcError as error:
            pytest.fail(f"this changefeed failed after another one was dropped: {error}")
        _assert_versions(behind, workload, since=begun, arrived=arrived)

    @requires("cursors", "the changefeed starts in the past")
    def test_a_cursor_yields_the_changes_after_it(
        self, workload: Workload, cursor: Cursor, make_changefeed: MakeChangefeed, open_feed: OpenFeed, first_table: str
    ) -> None:
        """A feed that starts at a cursor yields every later commit, in order, and no scan unless one is requested.

        If the cursor is a timestamp, earlier changes are left out by the engine.
        """
        workload.fill(first_table, 5)
        workload.put(first_table, 2)
        options = cursor()
        begun = len(workload.history)
        workload.put(first_table, 2)
        workload.delete(first_table, 3)
        workload.fill(first_table, 2, first=8)
        changefeed = make_changefeed(initial_scan=False, **options)
        feed = open_feed(changefeed=changefeed, start=True)
        feed.catch_up()
        after = changefeed.options.after or Timestamp()
        found = versions(change for change in feed.changes if change.updated > after)
        expected = workload.history.numbers(begun)
        assert found == expected, f"the versions after the cursor are {expected}, but {found} arrived"

    @requires("cursors", "the changefeed starts in the past")
    def test_a_cursor_is_refused_when_changes_after_it_are_gone(
        self, workload: Workload, cursor: Cursor, open_feed: OpenFeed, forget: Forget
    ) -> None:
        """A feed whose source has forgotten changes after the cursor does not start: `start` raises ConfigError.

        A source that has discarded nothing starts, and yields all of them.
        """
        workload.fill(workload.tables[0], 5)
        options = cursor()
        begun = len(workload.history)
        workload.run(6, settle=True)
        forget()
        feed = open_feed(initial_scan=False, **options)
        try:
            feed.start()
        except ConfigError:
            return
        feed.catch_up()
        _assert_versions(feed, workload, since=begun, arrived=0)


def _scanned(workload: Workload, open_feed: OpenFeed) -> Feed:
    workload.put(workload.tables[1], 91)
    return open_feed().scan()


def _from_an_old_token(workload: Workload, open_feed: OpenFeed, forget: Forget) -> tuple[Exception | None, str]:
    """Start from a token whose history was released. Return the error, and which commits did not arrive."""
    feed = _scanned(workload, open_feed)
    feed.catch_up()
    begun, old = len(workload.history), feed.progress
    _go_on(feed, workload, forget)
    arrived = len(feed.changes)
    error = failure_of(lambda: feed.restart(old)) or failure_of(feed.catch_up)
    return error, _gone(feed, workload, since=begun, arrived=arrived)


def _go_on(feed: Feed, workload: Workload, forget: Forget) -> None:
    for _ in range(3):
        workload.run(4, settle=True)
        feed.catch_up()
        forget()


def _assert_versions(feed: Feed, workload: Workload, *, since: int, arrived: int) -> None:
    """Assert that all commits from number *since* on are among the changes from number *arrived* on."""
    gone = _gone(feed, workload, since=since, arrived=arrived)
    assert not gone, gone


def _gone(feed: Feed, workload: Workload, *, since: int, arrived: int) -> str:
    """Return which commits from number *since* on are not among the changes from number *arrived* on."""
    found = versions(feed.changes[arrived:])
    for key, expected in workload.history.numbers(since).items():
        there = found.get(key, [])
        missing = [n for n in expected if n not in there]
        if missing:
            return f"the versions {missing} of row {key} are missing; {there} arrived after the start"
    return ""
