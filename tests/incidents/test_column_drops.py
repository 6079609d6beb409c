from __future__ import annotations

from collections.abc import Callable

from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.local_engine import LocalEngine

TABLES = [f"t{number}" for number in range(8)]
COLUMNS = ["a", "b", "c"]


def test_columns_dropped_from_many_tables_at_once_end_steps_and_lose_no_row(
    db: SimulatedDatabase, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]]
) -> None:
    """#136847: drops of several columns on 8 tables met in one step, whose end then lay before an earlier one's."""
    for table in TABLES:
        db.create_table(table)
        for column in COLUMNS:
            db.add_column(table, column)
        for id_ in range(3):
            db.put(table, id=id_, n=0, a="a", b="b", c="c")
        db.split(table, at=1)
        db.set_lag(table, at=1, ms=50 * TABLES.index(table))
    feed = engine(*TABLES)
    feed.run()
    feed.until(db.now)
    for number, column in enumerate(COLUMNS, start=1):
        for table in TABLES:
            db.drop_column(table, column)
        for table in TABLES:
            for id_ in range(3):
                db.put(table, id=id_, n=number)
        feed.step()
    feed.until(db.settle())
    assert faults(TABLES) == []
    versions = {table: db.cluster.table(table).newest_shape.schema.version for table in TABLES}
    assert set(versions.values()) == {1 + 2 * len(COLUMNS)}
