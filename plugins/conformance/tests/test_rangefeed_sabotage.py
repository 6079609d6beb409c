"""Every promise of a rangefeed has a saboteur. `cdc_conformance.sabotage` proves that each fails only its own test."""

from __future__ import annotations

import inspect

from cdc_conformance.plugin import SIMULATED
from cdc_conformance.promises import promises_of
from cdc_conformance.rangefeeds import RangefeedConformance
from cdc_conformance.sabotage.rangefeeds import SABOTEURS

from cdc_core.plugins.classes import load_class

FIELDS = ("rangefeed", "planner", "reader", "history", "options")


def test_every_promise_has_a_saboteur_and_every_saboteur_a_promise() -> None:
    assert set(SABOTEURS) == set(promises_of(RangefeedConformance))


def test_every_saboteur_has_broken_parts_of_its_own_that_say_what_is_wrong() -> None:
    broken = [
        load_class(getattr(saboteur, field), owner=test)
        for test, saboteur in SABOTEURS.items()
        for field in FIELDS
        if getattr(saboteur, field) != getattr(SIMULATED, field)
    ]
    assert len(set(broken)) == len(broken) >= len(SABOTEURS)
    assert all(inspect.getdoc(cls) for cls in broken)


def test_every_promise_is_explained() -> None:
    for name in promises_of(RangefeedConformance):
        text = inspect.getdoc(getattr(RangefeedConformance, name)) or ""
        assert len(text) > 60, name
