"""Broken sinks: each is the reference sink with one mistake."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from cdc_conformance.reference.sink import REFERENCE_SINK
from cdc_conformance.sinks.suite import SINK_CAPABILITIES, SinkConformance
from cdc_core import SinkRegistration

__all__ = ["SABOTEURS", "SUITE"]


class ReferenceSinkSuite(SinkConformance):
    """The suite with the reference sink, every capability declared."""

    sink = REFERENCE_SINK

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        return SINK_CAPABILITIES.keys()

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"reference://{tmp_path}/out"


SUITE = ReferenceSinkSuite
SABOTEURS: Mapping[str, SinkRegistration] = {}
