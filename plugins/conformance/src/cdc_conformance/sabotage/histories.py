"""Broken sinks with a history: each is the archive with one mistake, in the sink or in what reads the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_conformance.reference.archive import ARCHIVE
from cdc_conformance.sabotage.breaking import broken
from cdc_conformance.sabotage.broken_sinks import histories
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.fixtures import SinkFixtures


class HistoryConformance(ExactlyOnce, SinkFixtures):
    """The promises that only sinks with a history make."""

    kind = "sink"


class ArchiveSuite(HistoryConformance):
    """The suite with the archive."""

    sink = ARCHIVE

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"archive://{tmp_path}/out"


SUITE = ArchiveSuite

SABOTEURS = broken(ARCHIVE, histories)
"""The name of each promise's test -> the sink, or the history, that breaks this promise."""
