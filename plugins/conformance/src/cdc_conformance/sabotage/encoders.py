"""Broken encoders. Each is the reference encoder with one mistake, and breaks one promise."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cdc_conformance.encoders.suite import EncoderConformance
from cdc_conformance.reference.encoder import REFERENCE_ENCODER
from cdc_conformance.sabotage.breaking import broken
from cdc_conformance.sabotage.broken_encoders import imports, messages, packaging, values


class ReferenceEncoderSuite(EncoderConformance):
    """The suite with the reference encoder and all capabilities."""

    encoder = REFERENCE_ENCODER
    capabilities = frozenset(EncoderConformance.known_capabilities)

    @pytest.fixture
    def unreachable_options(self) -> Mapping[str, str]:
        return {"service": "127.0.0.1:9"}


SUITE = ReferenceEncoderSuite
SABOTEURS = broken(REFERENCE_ENCODER, values, messages, packaging, imports)
