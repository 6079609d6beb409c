"""The simulated database keeps every promise of a rangefeed, so it can serve as the reference component."""

from __future__ import annotations

from cdc_conformance.sabotage.rangefeed_suite import SimulatedSuite


class TestSimulated(SimulatedSuite):
    pass
