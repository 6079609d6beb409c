"""What the suite does not test of the simulated rangefeed: limits, ranges that lag, cursors, and messages."""

from __future__ import annotations

import dataclasses

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.follower import Follower
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedRangefeed
from cdc_conformance.simulated.source import SimulatedOptions

from cdc_core import ConfigError, Op, RangefeedContext


def test_ranges_lag_differently_and_hold_back_only_their_own_rows(db: SimulatedDatabase) -> None:
    db.split("t", at=100)
    db.set_lag("t", at=100, ms=5_000)
    feed = Follower(db)
    first, second = db.put("t", id=1, n=1), db.put("t", id=100, n=1)
    for _ in range(10):
        feed.step()
    assert [row.id for row in feed.changes] == [1]
    assert feed.frontier.latest > second
    assert feed.frontier.high_water < first
    feed.until(db.now)
    assert [row.id for row in feed.changes] == [1, 100]


def test_the_clock_is_never_behind_the_marks(db: SimulatedDatabase) -> None:
    feed = Follower(db)
    for _ in range(20):
        feed.step()
    assert db.now < feed.frontier.latest <= SimulatedPlanner(feed.context).now()


@pytest.mark.parametrize(
    ("uri", "table", "message"),
    [
        ("simulated://host/x", "t", "write simulated:///path"),
        ("simulated:///nowhere/at/all", "t", "create one first"),
        (None, "u", r"table public\.u is not in"),
    ],
)
def test_check_says_what_is_missing(db: SimulatedDatabase, uri: str | None, table: str, message: str) -> None:
    context = RangefeedContext(
        changefeed="f", feed_id="", uri=uri or db.uri, tables=(table,), options=SimulatedOptions()
    )
    with pytest.raises(ConfigError, match=message):
        SimulatedRangefeed(context).check()


def test_an_initial_scan_with_a_cursor_is_as_of_the_cursor(db: SimulatedDatabase) -> None:
    db.put("t", id=1, n=1)
    at = db.put("t", id=2, n=2)
    db.tick()
    db.put("t", id=1, n=3)
    db.create_table("later")
    db.put("later", id=5, n=5)
    feed = Follower(db, "t", "later", cursor=str(at))
    feed.until(db.now)
    found = [(row.op, row.id, row.after and row.after["n"], row.updated == at) for row in feed.changes]
    assert found == [(Op.SCAN, 1, 1, True), (Op.SCAN, 2, 2, True), (Op.UPDATE, 1, 3, False), (Op.INSERT, 5, 5, False)]


def test_a_cursor_without_history_is_refused_before_anything_is_kept(db: SimulatedDatabase) -> None:
    at = db.put("t", id=1, n=1)
    db.put("t", id=1, n=2)
    db.settle()
    oldest = db.collect_garbage()
    told = rf"^the simulated database has no history after cursor {at}; its history begins at {oldest}$"
    with pytest.raises(ConfigError, match=told):
        Follower(db, cursor=str(at), initial_scan=False)
    assert db.protected() == {}
    Follower(db, cursor=str(oldest), initial_scan=False)


def test_a_cursor_that_is_no_timestamp_is_refused(db: SimulatedDatabase) -> None:
    feed = Follower(db)
    with pytest.raises(ConfigError, match=r"^cursor '0/1' is not a timestamp, which the simulated database needs$"):
        SimulatedRangefeed(dataclasses.replace(feed.context, cursor="0/1")).check()
