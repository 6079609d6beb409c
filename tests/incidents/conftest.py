"""A simulated database, the files that a changefeed makes of it, and what judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.validators import FingerprintValidator, OrderValidator, ResolvedValidator, State, Validator
from cdc_testing.files import validate_files
from cdc_testing.local_engine import LocalEngine, resolved_feed

from cdc_core import Timestamp


@pytest.fixture
def db(tmp_path: Path) -> SimulatedDatabase:
    return SimulatedDatabase.create(tmp_path / "db", seed=5)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def engine(db: SimulatedDatabase, out: Path, tmp_path: Path) -> Callable[..., LocalEngine]:
    """Return a function that returns an engine for tables of `db` into files in `out`."""

    def engine_of(*tables: str, options: dict[str, Any] | None = None) -> LocalEngine:
        feed = resolved_feed(db.uri, f"file://{out}", *tables, options={"idle_interval": 0, **(options or {})})
        return LocalEngine(feed, tmp_path)

    return engine_of


@pytest.fixture
def faults(db: SimulatedDatabase, out: Path) -> Callable[..., list[str]]:
    """Return a function that returns what is wrong with the files in `out`, beside the database's own history.

    That less than *least* rows came is wrong too: all else is true of no rows at all.
    """

    def found(
        tables: Sequence[str], *, exact: bool = True, more: Iterable[Validator] = (), least: int = 1
    ) -> list[str]:
        def state_at(timestamp: Timestamp) -> State:
            snapshot = db.as_of(timestamp)
            return {table: {(id_,): row for id_, row in snapshot.rows(table).items()} for table in tables}

        validators: list[Validator] = [OrderValidator(), ResolvedValidator(), *more]
        if exact:
            validators.append(FingerprintValidator(state_at))
        rows = validate_files(out, tables, validators).rows.total()
        too_few = [] if rows >= least else [f"only {rows} rows came, not {least}"]
        return too_few + [failure for validator in validators for failure in validator.failures()]

    return found
