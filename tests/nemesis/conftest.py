"""A nemesis rig on the session's own servers and Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.nemesis_rig import NemesisRig


@pytest.fixture
def rig(thread_rig: NemesisRig, kept_spark: KeptSpark) -> NemesisRig:
    return replace(thread_rig, spark=kept_spark)


@pytest.fixture
def thread_rig(tmp_path: Path, request: pytest.FixtureRequest) -> NemesisRig:
    """Servers are asked for when they are needed."""
    return NemesisRig(
        tmp_path / "nemesis",
        None,
        postgres=lambda: request.getfixturevalue("postgres_server"),
        kafka=lambda: request.getfixturevalue("kafka_broker"),
        registry=lambda: request.getfixturevalue("schema_registry"),
    )
