"""The reference encoder keeps every promise."""

from __future__ import annotations

import pytest
from cdc_conformance.encoders import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER


class TestReference(EncoderConformance):
    encoder = REFERENCE_ENCODER

    @pytest.fixture
    def capabilities(self) -> frozenset[str]:
        return frozenset(self.known_capabilities)
