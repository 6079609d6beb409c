"""Two simulated databases as one source keep the promises of a rangefeed.

test_conformance.py has real ones, also for rescans: clocks of real servers go alike, as a rescan needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.rangefeeds import CAPABILITIES, RangefeedConformance
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.idle_shard import two_shards


class TestShards(RangefeedConformance):
    rangefeed = two_shards("simulated")
    capabilities = frozenset(CAPABILITIES) - {"cursors", "disturbance", "inspection", "rescans"}

    @pytest.fixture
    def databases(self, tmp_path: Path) -> list[SimulatedDatabase]:
        names = ("database", "database_idle")
        return [SimulatedDatabase.create(tmp_path / name, max_skew_ms=0, lag_ms=20) for name in names]

    @pytest.fixture
    def rangefeed_uri(self, databases: list[SimulatedDatabase], secret: str) -> str:
        return f"simulated://{databases[0].directory}?password={secret}"

    @pytest.fixture
    def forget(self, databases: list[SimulatedDatabase]) -> Callable[[], None]:
        def forget() -> None:
            for database in databases:
                database.tick(times=5)
                database.collect_garbage()

        return forget

    @pytest.fixture
    def rangefeed_options(self) -> Mapping[str, Any]:
        return {"idle_interval": 0.01, "batch_rows": 3, "scan_chunk_rows": 8}

    @pytest.fixture
    def secret(self) -> str:
        return "hush-hush"

    @pytest.fixture
    def large_slice_bytes(self) -> int:
        return 60_000

    @pytest.fixture
    def many_rows(self) -> int:
        return 80

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        return f"simulated://{tmp_path}/nowhere"
