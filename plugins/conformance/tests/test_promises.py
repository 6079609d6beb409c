"""A promise that needs a capability runs where it is declared, and is skipped with its reason elsewhere."""

from __future__ import annotations

import pytest
from cdc_conformance.promises import Conformance, promises_of, suite_of, words

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from cdc_conformance import Conformance, requires
from cdc_core import SinkRegistration

class PaperConformance(Conformance):
    kind = "sink"
    known_capabilities = {{"stall": "somebody can stop it for a while"}}

    @requires("stall", "somebody must stop it")
    def test_a_promise(self):
        pass

class TestIt(PaperConformance):
    sink = SinkRegistration(name="p", target="p:P", options="p:O", summary="", schemes=("p",), output="files")

    @pytest.fixture
    def capabilities(self):
        return {declared}
"""


class Lifecycle:
    def test_close_may_be_called_twice(self) -> None: ...


class PaperConformance(Lifecycle, Conformance):
    kind = "sink"

    def test_flush_is_a_barrier(self) -> None: ...


class OfPaper(PaperConformance):
    def test_of_its_own(self) -> None: ...


@pytest.mark.parametrize(
    ("declared", "outcome"), [("frozenset({'stall'})", {"passed": 1}), ("frozenset()", {"skipped": 1})]
)
def test_a_promise_is_asked_for_where_its_capability_is_declared(
    pytester: pytest.Pytester, declared: str, outcome: dict[str, int]
) -> None:
    pytester.makepyfile(SUITE.format(declared=declared))
    result = pytester.runpytest_inprocess("-rs")
    result.assert_outcomes(**outcome)
    if "skipped" in outcome:
        result.stdout.fnmatch_lines(["*needs the capability 'stall', which is not declared: somebody must stop it*"])


def test_a_capability_that_nobody_knows_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE.format(declared="{'stal'}"))
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*TestIt declares the capability 'stal', which no sink has; did you mean 'stall'?*"])


def test_the_promises_of_a_suite_are_the_tests_of_all_its_bases() -> None:
    assert suite_of(OfPaper) is PaperConformance
    assert promises_of(PaperConformance) == ("test_flush_is_a_barrier", "test_close_may_be_called_twice")
    assert suite_of(Lifecycle) is None
    assert words("test_flush_is_a_barrier[json]") == "flush is a barrier [json]"
