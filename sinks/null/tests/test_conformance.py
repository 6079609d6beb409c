"""The conformance suite, without the promises that need a reader."""

from __future__ import annotations

import pytest
from cdc_conformance import SinkConformance


class TestNull(SinkConformance):
    sink = "null"
    capabilities = frozenset({"unreachable"})

    @pytest.fixture
    def sink_uri(self) -> str:
        return "null://"

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "null://host/place"
