"""A nemesis rig on the session's own servers and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.nemesis_rig import NemesisRig


@pytest.fixture
def rig(kept_spark: KeptSpark, tmp_path: Path, request: pytest.FixtureRequest) -> NemesisRig:
    """Servers are asked for when they are needed."""
    return NemesisRig(
        tmp_path / "nemesis",
        kept_spark,
        postgres=lambda: request.getfixturevalue("postgres_server"),
        kafka=lambda: request.getfixturevalue("kafka_broker"),
        registry=lambda: request.getfixturevalue("schema_registry"),
    )
