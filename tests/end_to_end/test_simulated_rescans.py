"""Rescans of the simulated database through the engine: requests, restarts, and history that was lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.ndjson_rows import delivered, later
from cdc_testing.runs import eventually
from cdc_testing.stored import ask_rescan

from cdc_core.errors import HistoryLostError


@pytest.fixture
def db(tmp_path: Path) -> SimulatedDatabase:
    database = SimulatedDatabase.create(tmp_path / "db", seed=5)
    for table in ("t", "u"):
        database.create_table(table)
        for id_ in range(1, 41):
            database.put(table, id=id_, n=id_)
    return database


@pytest.fixture
def engine(db: SimulatedDatabase, tmp_path: Path) -> LocalEngine:
    """A changefeed that has read everything."""
    options = {"idle_interval": 0, "scan_chunk_rows": 8}
    engine = LocalEngine(resolved_feed(db.uri, f"file://{tmp_path}/out", "t", "u", options=options), tmp_path)
    engine.run()
    engine.until(db.settle())
    return engine


def complete(engine: LocalEngine) -> Callable[[], bool]:
    def steps() -> bool:
        engine.step()
        marks = [found.began for found in engine.store.rescans.of("t")]
        return all(mark is not None and engine.high_water > mark for mark in marks)

    return steps


def test_a_table_is_read_again_across_restarts(db: SimulatedDatabase, engine: LocalEngine, tmp_path: Path) -> None:
    full = db.cluster.table("t").name.full
    ask_rescan(engine.store, "t", table=full)
    ask_rescan(engine.store, "t", table=db.cluster.table("u").name.full, where="id < 4")
    condition = complete(engine)

    def with_restarts() -> bool:
        db.put("u", id=40, n=0)
        if engine.steps % 3 == 0:
            engine.run()
        return condition()

    eventually("the rescans", with_restarts)
    began = engine.store.rescans.of("t")[0].began
    assert later(delivered(tmp_path / "out", "t"), began) == set(range(1, 41))
    assert later(delivered(tmp_path / "out", "u"), began) == {1, 2, 3, 40}
    engine.close()


def test_a_changefeed_continues_after_its_history_was_lost(
    db: SimulatedDatabase, engine: LocalEngine, tmp_path: Path
) -> None:
    resolved = engine.high_water
    engine.close()
    db.delete("t", 1)
    db.settle()
    db.collect_garbage(force=True)
    with pytest.raises(HistoryLostError):
        engine.run()
    ask_rescan(engine.store, "t", table=None, new_slot=True)
    engine.run()
    assert engine.high_water == resolved
    eventually("the rescan", complete(engine))
    (found,) = engine.store.rescans.of("t")
    assert later(delivered(tmp_path / "out", "t"), found.began) == set(range(2, 41))
    engine.close()
