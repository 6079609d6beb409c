"""Promises about rescans and moves: someone asks for tables again, or for another position."""

from __future__ import annotations

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.changes import Change, newest
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.suite import OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import ConfigError, Op, Rescan, Timestamp

_HOUR_NS = 3_600_000_000_000
_STOPPED = "the changefeed is moved while it is stopped"
_NEEDED = "the table is read again while the feed runs"


class Rescans(RangefeedSuite):
    """Rescans: `StepPlanner.check_rescan` and `StepPlanner.scan_again`."""

    @requires("rescans", _NEEDED)
    def test_a_rescan_yields_every_row_again(self, workload: Workload, open_feed: OpenFeed) -> None:
        """All rows of the table arrive again with the op SCAN, above everything before, while changes continue.

        A rescan repairs what consumers have lost. They ignore a row whose `updated` is not above the one they have.
        """
        table, other = workload.tables
        workload.fill(table, 10)
        workload.fill(other, 3)
        feed = open_feed(rows=4).scan()
        workload.fill(table, 5, first=101)
        feed.catch_up()
        known, latest = len(feed.changes), feed.progress.latest
        workload.put(table, 1)
        workload.delete(table, 2)
        _rescan(feed, table)
        workload.put(table, 3)
        feed.catch_up()
        again = _scanned(feed.changes[known:])
        late = [change for change in again if change.updated <= latest]
        assert not late, f"a rescanned row is not above {latest}, which was delivered before the rescan: {late[0]}"
        assert {change.table for change in again} == {table}, "rows of other tables were read again"
        missing = {key for key in workload.rows if key[0] == table} - {change.row_key for change in again}
        assert not missing, f"these rows did not arrive again: {sorted(missing)}"
        seen = {key: change.after for key, change in newest(feed.changes).items() if not change.deleted}
        assert seen == workload.rows, "the rows that arrived, taken together, are not those of the tables"

    @requires("rescans", _NEEDED)
    def test_a_rescan_with_a_predicate_yields_the_rows_that_it_selects(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """With the predicate `id < 4`, only the rows with these keys arrive again.

        Users who repair part of a large table do not want to read all of it.
        """
        workload.fill(first_table, 10)
        feed = open_feed(first_table).scan()
        known = len(feed.changes)
        _rescan(feed, first_table, where="id < 4")
        feed.catch_up()
        found = [change.id for change in _scanned(feed.changes[known:])]
        assert sorted(map(str, found)) == ["1", "2", "3"], f"rows 1 to 3 must arrive again, not {found}"

    @requires("rescans", _NEEDED)
    def test_no_mark_is_resolved_before_a_rescan_is_complete(self, workload: Workload, open_feed: OpenFeed) -> None:
        """From the step that holds a rescan on, nothing is resolved until its last row has arrived.

        For consumers, the first resolved timestamp above the beginning of a rescan marks its end.
        """
        table = workload.tables[0]
        workload.fill(table, 12)
        feed = open_feed(table, rows=4).scan()
        feed.catch_up()
        known, latest = len(feed.changes), feed.progress.latest
        expected = {key for key in workload.rows if key[0] == table}
        workload.put(table, 1)
        _rescan(feed, table)
        for _ in feed.patiently("nothing is resolved after the rescan"):
            if feed.resolved > latest:
                break
            feed.step()
        missing = expected - {change.row_key for change in _scanned(feed.changes[known:])}
        assert not missing, f"{feed.resolved} was resolved before the rescan had read {sorted(missing)}"
        assert feed.resolved > Timestamp()


class Moves(RangefeedSuite):
    """Moves: `Rangefeed.move`."""

    @requires("moves", _STOPPED)
    def test_a_move_to_now_leaves_out_what_was_committed_before_and_nothing_else(
        self, workload: Workload, open_feed: OpenFeed, first_table: str
    ) -> None:
        """After a move to `now`, no earlier commit arrives, every later one does, and marks continue.

        Users move a changefeed to skip rows that must not arrive, and rely on receiving all others.
        """
        workload.fill(first_table, 5)
        feed = open_feed(first_table).scan()
        feed.catch_up()
        known, resolved = len(feed.changes), feed.resolved
        workload.put(first_table, 1, note="left out")
        workload.put(first_table, 7, note="left out")
        workload.delete(first_table, 2)
        found = feed.move("now")
        assert (found.forward, found.back) == (True, False), "a move to 'now' must be a move forward"
        assert feed.resolved == resolved, "a move must not change the resolved timestamp"
        workload.put(first_table, 3)
        workload.put(first_table, 8)
        feed.start()
        feed.catch_up()
        arrived = [change.id for change in feed.changes[known:]]
        assert sorted(set(map(str, arrived))) == ["3", "8"], f"rows 3 and 8 must arrive after the move, not {arrived}"

    @requires("moves", _STOPPED)
    def test_a_move_into_the_future_is_refused(self, workload: Workload, open_feed: OpenFeed, first_table: str) -> None:
        """A time that is later than the source's clock, and a text that is not a position, raise ConfigError.

        Changes up to a position in the future would be left out before they exist.
        """
        workload.fill(first_table, 3)
        feed = open_feed(first_table).scan()
        feed.catch_up()
        later = Timestamp(feed.clock.now().wall + _HOUR_NS)
        feed.kill()
        for to in (str(later), "no position of any source"):
            with pytest.raises(ConfigError) as raised:
                feed.rangefeed.move(feed.progress.token, to)
            assert "\n" not in str(raised.value), "the error must be one sentence"


def _rescan(feed: Feed, table: str, *, where: str | None = None) -> None:
    """Ask for a rescan of *table*, and return when a saved token holds it."""
    word = table.rpartition(".")[2].strip('"')
    (name,) = [schema.name for schema in feed.rangefeed.schemas() if schema.name.table == word]
    rescan = Rescan(table=name.full, where=where)
    feed.planner.check_rescan(rescan)
    feed.asked.append(rescan)
    feed.steps_until(lambda: not feed.asked, what="no step holds the rescan")


def _scanned(changes: list[Change]) -> list[Change]:
    return [change for change in changes if change.op is Op.SCAN]
