"""Promises about moves: a stopped changefeed continues from another position."""

from __future__ import annotations

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import ConfigError, Timestamp

__all__ = ["Moves"]

_NEEDED = "the changefeed is moved while it is stopped"
_HOUR_NS = 3_600_000_000_000


class Moves(RangefeedSuite):
    """Moves: `Rangefeed.move`."""

    @requires("moves", _NEEDED)
    def test_a_move_to_now_leaves_out_what_was_committed_before_and_nothing_else(
        self, workload: Workload, open_feed: OpenFeed
    ) -> None:
        """After a move to `now`, no earlier commit arrives, every later one does, and marks go on.

        People move a changefeed because of rows that must not arrive, and rely on all others.
        """
        table = workload.tables[0]
        workload.fill(table, 5)
        feed = open_feed(table)
        feed.scan()
        feed.catch_up()
        known, resolved = len(feed.changes), feed.resolved
        workload.put(table, 1, note="left out")
        workload.put(table, 7, note="left out")
        workload.delete(table, 2)
        found = feed.move("now")
        assert (found.forward, found.back) == (True, False), "now is later than a position of before"
        assert feed.resolved == resolved, "a move changes nothing of what is resolved"
        workload.put(table, 3)
        workload.put(table, 8)
        feed.start()
        feed.catch_up()
        arrived = [change.id for change in feed.changes[known:]]
        assert sorted(set(map(str, arrived))) == ["3", "8"], f"rows 3 and 8 must arrive after the move, not {arrived}"

    @requires("moves", _NEEDED)
    def test_a_move_into_the_future_is_refused(self, workload: Workload, open_feed: OpenFeed) -> None:
        """A time that is later than the source's clock, and a text that is no position, raise ConfigError.

        Changes up to a position in the future would be left out before they exist.
        """
        table = workload.tables[0]
        workload.fill(table, 3)
        feed = open_feed(table)
        feed.scan()
        feed.catch_up()
        later = Timestamp(feed.clock.now().wall + _HOUR_NS)
        feed.kill()
        for to in (str(later), "no position of any source"):
            with pytest.raises(ConfigError) as raised:
                feed.rangefeed.move(feed.progress.token, to)
            assert "\n" not in str(raised.value), "a refusal is one sentence"
