from __future__ import annotations

import pytest
from cdc_conformance.simulated import SimulatedDatabase, StatementError
from cdc_conformance.simulated.follower import Follower
from cdc_conformance.simulated.script import CRASH, PAUSE, SPLIT, play
from cdc_conformance.simulated.steps import Abort, Begin, Commit, Delete, Put, Remove, Rollback, Tick, Write


def test_a_script_can_kill_a_changefeed_while_a_transaction_is_open(db: SimulatedDatabase) -> None:
    feeds = [Follower(db)]

    def read() -> None:
        for _ in range(20):
            feeds[-1].step()

    def kill() -> None:
        feeds.append(Follower(db, resume_from=feeds[-1].progress))

    play(
        db,
        [
            Put("t", 1, n=1),
            Begin("a"),
            Write("a", "t", 1, n=2),
            SPLIT,
            Write("a", "t", 9, n=2),
            PAUSE,
            CRASH,
            Put("t", 5, n=5),
            Commit("a"),
            Delete("t", 5),
        ],
        on={SPLIT: lambda: db.split("t", at=5), PAUSE: read, CRASH: kill},
    )
    feeds[-1].until(db.now)

    assert [(row.id, row.after and row.after["n"]) for row in feeds[0].changes] == [(1, 1)]
    assert [(row.id, row.after and row.after["n"]) for row in feeds[1].changes if (row.id or 0) < 5] == [(1, 2)]
    assert [(row.id, row.after and row.after["n"]) for row in feeds[1].changes if (row.id or 0) >= 5] == [
        (9, 2),
        (5, 5),
        (5, None),
    ]
    assert db.as_of(db.now).rows("t") == {1: {"id": 1, "n": 2, "note": None}, 9: {"id": 9, "n": 2, "note": None}}


def test_play_returns_the_outcome_of_each_item(db: SimulatedDatabase) -> None:
    committed, nothing, said = play(db, [Put("t", 1, n=1), Tick(), PAUSE], {PAUSE: lambda: "said"})
    assert committed == db.now
    assert (nothing, said) == (None, "said")


def test_an_unknown_marker_is_refused_before_anything_is_executed(db: SimulatedDatabase) -> None:
    events = db.cluster.events
    with pytest.raises(ValueError, match="CRASH, PAUSE"):
        play(db, [Put("t", 1, n=1), PAUSE, CRASH, SPLIT], on={SPLIT: lambda: None})
    assert db.cluster.events == events


def test_refused_statements_of_random_scripts_have_no_effect(db: SimulatedDatabase) -> None:
    refused = [
        Begin("a"),
        Put("t", 1, n=2),
        Put("t", 2),
        Write("b", "t", 1, n=1),
        Write("a", "t", 2, other=1),
        Put("nowhere", 2, n=1),
    ]
    with pytest.raises(StatementError, match="'a' already exists"):
        play(db, [Begin("a"), Begin("a")])
    db.execute("write", txn="a", table="t", id=1, set={"n": 1})
    before = db.cluster.events
    assert play(db, refused, skip_refused=True) == [None] * 6
    assert db.cluster.events == before
    db.execute("rollback", txn="a")
    assert play(db, [Remove("a", "t", 1), Abort("a"), Rollback("a")], skip_refused=True) == [None] * 3
    assert db.rows("t") == {}


def test_the_repr_of_a_step_is_its_source() -> None:
    script = [Put("t", 1, n=2), Put("t", 1, n=2, node=3), Write("a", "t", 1, note="x"), PAUSE]
    assert repr(script) == "[Put('t', 1, n=2), Put('t', 1, n=2, node=3), Write('a', 't', 1, note='x'), PAUSE]"
