"""Replicas of the simulated cluster: where spans are read, and which replica serves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase, StatementError
from cdc_conformance.simulated.follower import Follower
from cdc_conformance.simulated.table import key_of

from cdc_core import Locality, PlacementRules

LOCALITIES = ("region=eu,zone=a", "region=eu,zone=b", "region=us,zone=a", "region=asia")
TABLE = "sim.public.t"


@pytest.fixture
def db(tmp_path: Path) -> SimulatedDatabase:
    """Four nodes, and a table of four ranges: each is on two nodes, and the first of them has the lease."""
    db = SimulatedDatabase.create(tmp_path / "db", seed=2, localities=LOCALITIES)
    db.create_table("t")
    for at in (10, 20, 30):
        db.split("t", at=at)
    for at, nodes in ((0, (1, 3)), (10, (2, 3)), (20, (3, 1)), (30, (4, 1))):
        db.move_replicas("t", at=at, to=nodes)
        db.transfer_lease("t", at=at, to=nodes[0])
    db.settle()
    return db


def follower(db: SimulatedDatabase, rules: PlacementRules, *, rows: Sequence[int] = (1, 11, 21, 31)) -> Follower:
    """Return a changefeed that has read *rows*, each written after the start."""
    feed = Follower(db, placement=rules, initial_scan=False)
    for id_ in rows:
        db.put("t", id=id_, n=1)
    feed.until(db.now)
    return feed


def read_at(db: SimulatedDatabase) -> dict[int, Locality]:
    """Return where the planner placed the last read of each range, by the first row of the range."""
    starts = {range_.span.start: id_ for id_, range_ in zip((0, 10, 20, 30), db.cluster.ranges[TABLE], strict=True)}
    return {starts[entry.span.start]: entry.wanted for entry in db.served()}


def at(*numbers: int) -> dict[int, Locality]:
    return dict(zip((0, 10, 20, 30), (Locality.parse(LOCALITIES[number - 1]) for number in numbers), strict=True))


def test_ranges_are_read_at_their_leaseholders(db: SimulatedDatabase) -> None:
    feed = follower(db, PlacementRules())
    assert sorted(row.id or 0 for row in feed.changes) == [1, 11, 21, 31]
    assert read_at(db) == at(1, 2, 3, 4)


def test_a_leaseholder_outside_of_the_filter_is_read_as_near_as_possible(db: SimulatedDatabase) -> None:
    follower(db, PlacementRules(within=Locality.parse("region=eu")))
    wanted = read_at(db)
    assert (wanted[0], wanted[10]) == (Locality.parse(LOCALITIES[0]), Locality.parse(LOCALITIES[1]))
    assert all(locality.matches(Locality.parse("region=eu")) for locality in wanted.values())


def test_a_filter_without_nodes_chooses_among_all(db: SimulatedDatabase) -> None:
    follower(db, PlacementRules(within=Locality.parse("region=mars")))
    assert read_at(db) == at(1, 2, 3, 4)


def test_balanced_ranges_are_read_by_one_node_each(db: SimulatedDatabase) -> None:
    for id_ in (0, 10, 20, 30):
        db.move_replicas("t", at=id_, to=(1, 2, 3, 4))
    follower(db, PlacementRules(strategy="balanced_simple"))
    (step,) = {tuple(sorted(map(str, read_at(db).values())))}
    assert step == tuple(sorted(LOCALITIES))


def test_a_reader_is_served_by_the_closest_replica_that_has_closed_what_it_reads(
    db: SimulatedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_LOCALITY", "region=us,zone=b")

    def nodes(feed: Follower, id_: int) -> list[int]:
        before = len(db.served())
        db.put("t", id=id_, n=2)
        feed.until(db.now)
        found = db.served()[before:]
        assert {entry.locality for entry in found} == {Locality.parse("region=us,zone=b")}
        return [entry.node for entry in found if entry.span.start <= key_of(id_) < (entry.span.end or b"\xff" * 9)]

    feed = Follower(db, initial_scan=False)
    assert set(nodes(feed, 1)) == {3}, "the follower in the reader's region"
    db.set_lag("t", at=1, ms=10_000, node=3)
    assert set(nodes(feed, 2)) == {1}, "it lags behind, and the leaseholder does not"
    db.set_lag("t", at=1, ms=0, node=3)
    assert set(nodes(feed, 3)) == {3}
    for id_, more in ((0, (1, 3, 2)), (10, (2, 3, 1)), (20, (3, 1, 2))):
        db.move_replicas("t", at=id_, to=more)
    db.crash(3)
    assert set(nodes(feed, 12)) == {2}, "a node that is down serves nobody"


def test_a_replica_that_moved_knows_nothing_before_it_hears_of_it(db: SimulatedDatabase) -> None:
    db.move_replicas("t", at=0, to=(1, 4))
    range_ = db.cluster.range_of(TABLE, key_of(0))
    assert (range_.leaseholder, range_.closed_on(1)) == (1, range_.closed)
    assert not range_.closed_on(4)
    db.tick()
    assert db.cluster.range_of(TABLE, key_of(0)).closed_on(4) == db.cluster.range_of(TABLE, key_of(0)).closed


def test_the_lease_moves_with_the_replicas(db: SimulatedDatabase) -> None:
    db.move_replicas("t", at=0, to=(4, 2))
    assert db.cluster.range_of(TABLE, key_of(0)).leaseholder == 4


def test_replicas_are_refused_where_they_cannot_be(db: SimulatedDatabase) -> None:
    db.crash(4)
    for nodes, why in (((1, 4), "node 4 is down"), ((1, 1), "each node once"), ((), "most of"), ((9,), "no node 9")):
        with pytest.raises(StatementError, match=why):
            db.move_replicas("t", at=0, to=nodes)
    with pytest.raises(StatementError, match="node 2 has no replica"):
        db.set_lag("t", at=0, ms=1, node=2)
