"""A promise that needs a capability runs where it is declared, and is skipped with its reason elsewhere."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from cdc_conformance import requires

class TestIt:
    @pytest.fixture
    def capabilities(self):
        return {declared}

    @requires("stall", "somebody must stop it")
    def test_a_promise(self):
        pass
"""


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
