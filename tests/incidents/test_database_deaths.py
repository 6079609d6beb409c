from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.errors import UnavailableError
from cdc_conformance.validators import FingerprintValidator, SeenMark, SeenRow, State, retried

from cdc_core import Timestamp


def test_a_validator_tolerates_a_database_that_dies_and_still_finds_a_lost_row(db: SimulatedDatabase) -> None:
    """#85533: a validator reported rows as lost. They existed: it took the error of a dead database for an answer."""
    db.create_table("t")
    first, second = db.put("t", id=1, n=1), db.put("t", id=2, n=2)
    asked = 0

    def state_at(timestamp: Timestamp) -> State:
        nonlocal asked
        asked += 1
        if asked % 3:
            raise UnavailableError("the database is down")
        return {"t": {(id_,): row for id_, row in db.as_of(timestamp).rows("t").items()}}

    def failures(*rows: SeenRow) -> list[str]:
        validator = FingerprintValidator(retried(state_at, on=(UnavailableError,), pause_s=0.0))
        for row in rows:
            validator.note_row(row)
        validator.note_resolved(SeenMark(resolved=second))
        return validator.failures()

    one = SeenRow(topic="t", key=(1,), after={"id": 1, "n": 1, "note": None}, updated=first)
    two = SeenRow(topic="t", key=(2,), after={"id": 2, "n": 2, "note": None}, updated=second)
    assert failures(one, two) == []
    assert len(failures(one)) == 1
    assert asked >= 6


def test_an_oracle_that_queries_postgresql_continues_after_its_connection_is_killed(database: str) -> None:
    """#85533: the same with a connection that the server ends."""
    connections: list[psycopg.Connection[tuple[int]]] = []

    def query() -> int:
        if not connections or connections[-1].closed:
            connections.append(psycopg.connect(database, autocommit=True))
        row = connections[-1].execute("SELECT 1").fetchone()
        assert row is not None
        return row[0]

    oracle: Callable[[], int] = retried(query, on=(psycopg.OperationalError,), pause_s=0.0)
    assert oracle() == 1
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [connections[0].info.backend_pid])
    assert oracle() == 1
    assert len(connections) == 2
    connections[-1].close()


def test_any_other_error_is_not_retried() -> None:
    """#85533: the remedy must not hide a mistake in the query."""

    def query() -> int:
        raise ValueError("no such table")

    with pytest.raises(ValueError, match="no such table"):
        retried(query, on=(UnavailableError,))()
