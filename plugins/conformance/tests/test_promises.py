"""Promises are collected where their capability is declared and where they apply to the registration."""

from __future__ import annotations

import pytest
from cdc_conformance.promises import Conformance, promises_of, suite_of, words

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from cdc_conformance import Condition, Conformance, applies_if, requires
from cdc_conformance.promises import does_not_apply
from cdc_core import SinkRegistration

HAS_READER = Condition(lambda cls: bool(cls.sink.reader), "the sink registers no reader")
HAS_HISTORY = Condition(lambda cls: bool(cls.sink.history), "the sink registers no history")

@applies_if(HAS_HISTORY)
class History:
    def test_history(self): pass
    def test_gaps(self): pass

class Delivery:
    @requires("stall", "the test must stop the destination")
    def test_memory_is_bounded(self): pass

    @applies_if(HAS_READER)
    def test_reading(self): pass

    def test_nulls(self, readable): pass

    def test_rows(self, way): pass

    def test_always(self): pass

    def test_envelopes(self): does_not_apply("the encoder has no envelope with rows")

class PaperConformance(History, Delivery, Conformance):
    kind = "sink"
    known_capabilities = {"stall": "the test can stop it", "refusal": "it can refuse rows"}
    fixture_conditions = {"readable": HAS_READER}

    @pytest.fixture
    def readable(self): pass

    @pytest.fixture(params=["all", pytest.param("bad", marks=requires("refusal", "the destination must refuse rows"))])
    def way(self, request): pass

PAPER = SinkRegistration(
    name="p", sink="p:S", resolved_sink="p:R", destination="p:D", options="p:O", summary="", schemes=("p",),
    output="files", PARTS
)

class TestIt(PaperConformance):
    sink = PAPER
    capabilities = CAPABILITIES

class TestOther:
    def test_of_no_suite(self): pass
"""

ALWAYS = ["test_rows[all]", "test_always", "test_envelopes"]


class Lifecycle:
    def test_close_may_be_called_twice(self) -> None: ...


class PaperConformance(Lifecycle, Conformance):
    kind = "sink"

    def test_flush_is_a_barrier(self) -> None: ...


class OfPaper(PaperConformance):
    def test_of_its_own(self) -> None: ...


@pytest.mark.parametrize(
    ("capabilities", "parts", "collected"),
    [
        ("()", "", ALWAYS),
        ("{'stall'}", "", ["test_memory_is_bounded", *ALWAYS]),
        ("{'refusal'}", "", ["test_rows[bad]", *ALWAYS]),
        ("()", "reader='p:Reader'", ["test_reading", "test_nulls", *ALWAYS]),
        ("()", "history='p:History'", ["test_history", "test_gaps", *ALWAYS]),
    ],
    ids=["nothing", "capability", "capability-of-a-parameter", "reader", "history"],
)
def test_only_promises_that_are_declared_are_collected(
    pytester: pytest.Pytester, capabilities: str, parts: str, collected: list[str]
) -> None:
    pytester.makepyfile(SUITE.replace("CAPABILITIES", capabilities).replace("PARTS", parts))
    result = pytester.runpytest_inprocess("-ra", "-p", "no:cacheprovider", "--collect-only", "-q")
    found = [line.rpartition("::")[2] for line in result.outlines if "TestIt::" in line]
    assert sorted(found) == sorted(collected)


def test_a_run_prints_nothing_about_other_promises(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE.replace("CAPABILITIES", "()").replace("PARTS", ""))
    result = pytester.runpytest_inprocess("-ra", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
    assert "capability" not in result.stdout.str()
    assert "registers no" not in result.stdout.str()
    assert "envelope" not in result.stdout.str()
    assert result.outlines[-1].startswith("=")
    assert "3 passed, 1 not declared in" in result.outlines[-1]


def test_the_promises_of_a_suite_are_the_tests_of_all_its_bases() -> None:
    assert suite_of(OfPaper) is PaperConformance
    assert promises_of(PaperConformance) == ("test_flush_is_a_barrier", "test_close_may_be_called_twice")
    assert suite_of(Lifecycle) is None
    assert words("test_flush_is_a_barrier[json]") == "flush is a barrier [json]"
