"""The simulated database keeps every promise of a rangefeed, so it can serve as the reference component."""

from __future__ import annotations

import inspect

from cdc_conformance.promises import promises_of
from cdc_conformance.rangefeeds import RangefeedConformance
from cdc_conformance.sabotage.rangefeeds import SimulatedSuite


class TestSimulated(SimulatedSuite):
    pass


def test_every_promise_is_explained() -> None:
    for name in promises_of(RangefeedConformance):
        text = inspect.getdoc(getattr(RangefeedConformance, name)) or ""
        assert len(text) > 60, name
