"""The reference encoder keeps every promise."""

from __future__ import annotations

from cdc_conformance.sabotage.encoders import ReferenceEncoderSuite


class TestReference(ReferenceEncoderSuite):
    pass
