from __future__ import annotations

from collections.abc import Callable

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.validators import SeenMark, SeenRow
from cdc_testing.local_engine import LocalEngine

SIZES = {"large": 110, "middle": 31, "single": 1, "empty": 0}


class Keys:
    """Every key that arrived, by topic."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {table: set() for table in SIZES}

    def note_row(self, row: SeenRow) -> None:
        self.seen[row.topic].add(row.key[0])

    def note_resolved(self, mark: SeenMark) -> None: ...

    def failures(self) -> list[str]:
        return [f"{table}: {len(keys)} keys" for table, keys in self.seen.items() if len(keys) != SIZES[table]]


@pytest.mark.parametrize("order", [list(SIZES), list(reversed(SIZES))], ids=["largest first", "largest last"])
def test_a_restart_after_each_step_of_the_initial_scan_skips_no_row(
    db: SimulatedDatabase, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]], order: list[str]
) -> None:
    """A123371: a restart moved all spans to the checkpoint of one of them, so parts of the table were never scanned."""
    for table in order:
        db.create_table(table)
        with db.transaction() as txn:
            for id_ in range(SIZES[table]):
                txn.put(table, id=id_, n=id_)
    for at in (3, 50, 90):
        db.split("large", at=at)
    starts = 0
    while True:
        feed = engine(*order, options={"scan_chunk_rows": 20})
        feed.run()
        if feed.progress.token["scan"] is None:
            break
        assert not feed.high_water, "nothing is resolved before all tables are scanned"
        assert feed.step()
        starts += 1
    assert starts > 5
    feed.until(db.settle())
    assert faults(order, more=[Keys()]) == []


def test_a_crash_within_each_step_of_the_initial_scan_skips_no_row(
    db: SimulatedDatabase, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]]
) -> None:
    """A123371: a step that was delivered but not saved is scanned again, and the rest of the scan follows."""
    for table, size in SIZES.items():
        db.create_table(table)
        with db.transaction() as txn:
            for id_ in range(size):
                txn.put(table, id=id_, n=id_)
    alive = engine(*SIZES, options={"scan_chunk_rows": 20})
    alive.run()
    while alive.progress.token["scan"] is not None:
        dying = engine(*SIZES, options={"scan_chunk_rows": 20})
        dying.run()
        dying.store.changefeeds.begin_attempt("t")  # fenced: the step delivers its rows, but its progress is not saved
        with pytest.raises(Exception, match="took over"):
            dying.step()
        alive = engine(*SIZES, options={"scan_chunk_rows": 20})
        alive.run()
        alive.step()
    alive.until(db.settle())
    assert faults(list(SIZES), more=[Keys()]) == []
