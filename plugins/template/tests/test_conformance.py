"""The sink keeps the promises of sinks."""

from pathlib import Path

import pytest
from cdc_conformance import SinkConformance


class TestTemplate(SinkConformance):
    sink = "template"

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"template://{tmp_path}/messages.db"
