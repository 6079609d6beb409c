"""Every promise of functions has a saboteur, which breaks that promise alone."""

from __future__ import annotations

import dataclasses

import pytest
from cdc_conformance.functions import FunctionConformance
from cdc_conformance.promises import promises_of
from cdc_conformance.sabotage.functions import SABOTEURS, SUITE
from cdc_testing.query_functions import FUNCTIONS

from cdc_core import FunctionRegistration
from cdc_core.delivery.called_function import CalledFunction


class TestReference(FunctionConformance):
    function = SUITE.function


class TestTextsAndNumbers(FunctionConformance):
    function = next(function for function in FUNCTIONS if function.name == "joined")


class TestRowsThatFail(FunctionConformance):
    function = next(function for function in FUNCTIONS if function.name == "whole_number")


@pytest.mark.parametrize("promise", SABOTEURS)
def test_a_saboteur_breaks_its_promise_and_no_other(promise: str) -> None:
    broken = [name for name in promises_of(FunctionConformance) if not _holds(name, SABOTEURS[promise])]
    assert broken == [promise]


def _holds(promise: str, registration: FunctionRegistration) -> bool:
    suite = SUITE()
    fixtures = {
        "registration": registration,
        "called": CalledFunction(registration),
        "rows": FunctionConformance.rows.__wrapped__(suite, registration),  # type: ignore[attr-defined]
    }
    test = getattr(suite, promise)
    wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    try:
        test(**{name: fixtures[name] for name in wanted})
    except Exception:
        return False
    return True


def test_the_reference_is_registered_as_the_saboteurs_are() -> None:
    assert isinstance(SUITE.function, FunctionRegistration)
    saboteur, reference = SABOTEURS["test_nulls_are_values_like_others"], SUITE.function
    assert dataclasses.replace(saboteur, function=reference.function, summary=reference.summary) == reference
