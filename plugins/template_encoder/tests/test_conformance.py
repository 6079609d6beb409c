"""The encoder keeps the promises of encoders."""

import pytest
from cdc_conformance import EncoderConformance


class TestTemplate(EncoderConformance):
    encoder = "template"

    @pytest.fixture
    def capabilities(self) -> frozenset[str]:
        return frozenset({"json_null"})
