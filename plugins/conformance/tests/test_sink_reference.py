"""The reference sink keeps every promise, with nothing skipped."""

from __future__ import annotations

from cdc_conformance.sabotage.sinks import SUITE


class TestReference(SUITE):
    """Everything that a sink can promise."""
