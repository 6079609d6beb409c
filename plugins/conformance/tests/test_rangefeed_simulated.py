"""The simulated database keeps every promise of a rangefeed, so that saboteurs can be made of it."""

from __future__ import annotations

from cdc_conformance.sabotage.rangefeed_suite import SimulatedSuite


class TestSimulated(SimulatedSuite):
    pass
