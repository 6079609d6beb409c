"""Each promise of a rangefeed has somebody who breaks it; that each fails only its own test, the table shows."""

from __future__ import annotations

import inspect

from cdc_conformance.promises import promises_of
from cdc_conformance.rangefeeds import RangefeedConformance
from cdc_conformance.sabotage.rangefeeds import SABOTEURS

from cdc_core.plugins.classes import load_class


def test_every_promise_has_a_saboteur_and_every_saboteur_a_promise() -> None:
    assert set(SABOTEURS) == set(promises_of(RangefeedConformance))


def test_every_saboteur_says_which_mistake_it_stands_for() -> None:
    classes = {load_class(saboteur.target, owner=test) for test, saboteur in SABOTEURS.items()}
    assert len(classes) == len(SABOTEURS)
    assert all(inspect.getdoc(cls) for cls in classes)


def test_every_promise_is_explained() -> None:
    for name in promises_of(RangefeedConformance):
        text = inspect.getdoc(getattr(RangefeedConformance, name)) or ""
        assert len(text) > 60, name
