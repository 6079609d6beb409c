"""Schema boundaries: what a changefeed of the simulated database does when a table gets another shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cdc_conformance.rangefeeds.changes import Change
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.follower import Follower

from cdc_core import Op, Rescan, SchemaChangeRules, Span, Timestamp


@pytest.fixture
def db(db: SimulatedDatabase) -> SimulatedDatabase:
    for id_ in range(5):
        db.put("t", id=id_, n=id_)
    return db


def followed(db: SimulatedDatabase, *tables: str, **rules: Any) -> Follower:
    """Return a follower that has read everything up to now."""
    feed = Follower(db, *tables, schema_changes=SchemaChangeRules(**rules), diff=True, mvcc=True)
    feed.until(db.now)
    feed.changes.clear()
    return feed


def again(feed: Follower, *, at: Timestamp) -> list[Change]:
    """Return the rows of the backfill as of *at*."""
    return [row for row in feed.changes if row.op is Op.SCAN and row.updated == at]


CHANGES: dict[str, tuple[Callable[[SimulatedDatabase], Timestamp], bool]] = {
    "added": (lambda db: db.add_column("t", "x"), False),
    "filled": (lambda db: db.add_column("t", "x", default="filled"), True),
    "dropped": (lambda db: db.drop_column("t", "note"), True),
    "renamed": (lambda db: db.rename_column("t", "note", "text"), False),
    "keyed": (lambda db: db.change_key("t", "n", "id"), True),
    "retyped": (lambda db: db.change_type("t", "size", "float"), True),
}
"""What a statement does, and whether the default events include it."""


@pytest.mark.parametrize("events", ["default", "column_changes"])
@pytest.mark.parametrize("kind", CHANGES)
def test_the_events_decide_what_is_read_again(db: SimulatedDatabase, kind: str, events: str) -> None:
    change, default = CHANGES[kind]
    db.add_column("t", "size", "int", default=7)
    feed = followed(db, events=events)
    since = change(db)
    feed.until(db.now)
    assert len(again(feed, at=since)) == (5 if default or events == "column_changes" else 0)


def test_all_tables_wait_at_a_boundary_for_the_slowest(db: SimulatedDatabase) -> None:
    db.create_table("u")
    feed = followed(db, "t", "u")
    slow = db.begin()
    slow.put("u", id=1, n=1)
    since = db.drop_column("t", "note")
    for _ in range(30):
        feed.step()
    assert feed.changes == []
    assert feed.frontier.of(Span("sim.public.t")) == since.prev()
    slow.commit()
    feed.until(db.now)
    assert [row.table for row in feed.changes] == ["u", *"ttttt"]


def test_a_step_into_a_backfill_is_planned_anew(db: SimulatedDatabase) -> None:
    feed = followed(db)
    db.drop_column("t", "note")
    db.settle()
    steps = []
    while not feed.changes:
        start = feed.token
        assert feed.step()
        steps.append(feed.planner.repeat(start, feed.token, after=feed.frontier.latest))
    assert steps[-1] is None
    assert None not in steps[:-1]


def test_rows_have_the_key_of_their_time_and_move_when_it_changes(db: SimulatedDatabase) -> None:
    feed = followed(db)
    early = db.put("t", id=1, n=10)
    since = db.change_key("t", "n", "id")
    late = db.put("t", id=1, n=11)
    gone = db.delete("t", 1)
    feed.until(db.now)
    keys = [(row.op, row.key, row.updated) for row in feed.changes]
    scanned = [(Op.SCAN, {"n": 10 if id_ == 1 else id_, "id": id_}, since) for id_ in range(5)]
    assert keys == [
        (Op.UPDATE, {"id": 1}, early),
        *scanned,
        (Op.DELETE, {"n": 10, "id": 1}, late),
        (Op.INSERT, {"n": 11, "id": 1}, late),
        (Op.DELETE, {"n": 11, "id": 1}, gone),
    ]


@pytest.mark.parametrize("columns", [("n",), ("id", "id"), ("id", "missing"), ("id", "note")])
def test_a_key_that_a_table_cannot_have_is_refused(db: SimulatedDatabase, columns: tuple[str, ...]) -> None:
    with pytest.raises(StatementError, match=r"cannot have the key|has null in a column of the new key"):
        db.change_key("t", *columns)
    with db.transaction() as txn:
        txn.put("t", id=1, n=1)
        with pytest.raises(StatementError, match="while a transaction writes to it"):
            db.change_key("t", "n", "id")


def test_a_rescan_directly_behind_a_boundary_without_backfill_begins(db: SimulatedDatabase) -> None:
    feed = followed(db)
    db.rename_column("t", "note", "text")
    token = feed.planner.scan_again(feed.token, [Rescan(table=None)])
    assert token is not None
    at = Timestamp.parse(token["again"]["at"])
    assert at.prev() == db.cluster.table("t").newest_shape.since
    feed.save(replace(feed.progress, token=token))
    feed.until(at)
    assert [row.id for row in again(feed, at=at)] == [0, 1, 2, 3, 4]
