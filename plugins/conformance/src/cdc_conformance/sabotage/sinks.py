"""Broken sinks: each is the reference sink with one mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_conformance.promises import constant, promises_of
from cdc_conformance.reference.partitions import DirectoryDisturbance
from cdc_conformance.reference.sink import REFERENCE_SINK
from cdc_conformance.sabotage.breaking import broken
from cdc_conformance.sabotage.broken_sinks import contents, imports, lifecycle, marks, refusals
from cdc_conformance.sinks import SINK_CAPABILITIES, SinkConformance
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_core import MB


class ReferenceSinkSuite(SinkConformance):
    """The suite with the reference sink, which declares every capability."""

    sink = REFERENCE_SINK
    capabilities = frozenset(SINK_CAPABILITIES)

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"reference://{tmp_path}/out"

    @pytest.fixture
    def unreachable_uri(self, tmp_path: Path) -> str:
        (tmp_path / "file").touch()
        return f"reference://{tmp_path}/file/out"

    row_limit_bytes = constant(MB // 2)
    memory_bound_bytes = constant(4 * MB)
    watch_s = constant(0.15)
    settle_s = constant(1.0)
    close_limit_s = constant(2.0)

    @pytest.fixture
    def disturbance(self, tmp_path: Path) -> DirectoryDisturbance:
        return DirectoryDisturbance(tmp_path / "out")


SUITE = ReferenceSinkSuite
ELSEWHERE = frozenset(promises_of(ExactlyOnce))
"""Promises of sinks with a history: `cdc_conformance.sabotage.histories` breaks them."""
SABOTEURS = broken(REFERENCE_SINK, lifecycle, contents, marks, refusals, imports)
"""The name of each promise's test -> the sink that breaks this promise."""
