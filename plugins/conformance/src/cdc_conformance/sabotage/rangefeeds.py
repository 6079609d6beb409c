"""Broken rangefeeds: the simulated database, each with one mistake, which must fail exactly one promise's test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_conformance.plugin import SIMULATED
from cdc_conformance.promises import constant
from cdc_conformance.rangefeeds import CAPABILITIES, RangefeedConformance
from cdc_conformance.sabotage.breaking import broken
from cdc_conformance.sabotage.broken_rangefeeds import concurrency, lifecycle, planning, rows
from cdc_conformance.simulated import SimulatedDatabase


class RenamedDirectory:
    """Renames the database's directory for a while."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def broken(self) -> Iterator[None]:
        away = self._directory.with_name("away")
        self._directory.rename(away)
        try:
            yield
        finally:
            away.rename(self._directory)


class SimulatedSuite(RangefeedConformance):
    """The rangefeed suite of the simulated database, with every capability declared."""

    rangefeed = "simulated"
    capabilities = frozenset(CAPABILITIES)

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        # If the nodes' clocks differ, many transactions get one timestamp, and no step can end among them.
        return SimulatedDatabase.create(tmp_path / "database", max_skew_ms=0, lag_ms=20).directory

    @pytest.fixture
    def rangefeed_uri(self, directory: Path, secret: str) -> str:
        return f"simulated://{directory}?password={secret}"

    rangefeed_options = constant({"idle_interval": 0.01, "batch_rows": 3, "scan_chunk_rows": 8})
    secret = constant("hush-hush")

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        return f"simulated://{tmp_path}/nowhere"

    @pytest.fixture
    def created(self, directory: Path) -> Callable[[], object]:
        return lambda: SimulatedDatabase(directory).protected().keys()

    @pytest.fixture
    def cursor(self, directory: Path) -> Callable[[], Mapping[str, Any]]:
        return lambda: {"cursor": str(SimulatedDatabase(directory).as_of().timestamp)}

    @pytest.fixture
    def forget(self, directory: Path) -> Callable[[], None]:
        def forget() -> None:
            database = SimulatedDatabase(directory)
            database.tick(times=5)
            database.collect_garbage()

        return forget

    @pytest.fixture
    def disturbance(self, directory: Path) -> RenamedDirectory:
        return RenamedDirectory(directory)

    large_slice_bytes = constant(60_000)
    many_rows = constant(80)
    patience_s = constant(0.5)


SUITE = SimulatedSuite
SABOTEURS = broken(SIMULATED, lifecycle, rows, planning, concurrency)
"""The registration that breaks each promise, by the name of the promise's test."""
