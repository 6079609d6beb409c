"""Nobody passes by overriding a promise: what a subclass of a suite may do, and what is refused while collecting."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import pytest
from cdc_conformance import Conformance
from cdc_core import SinkRegistration

SHELF = SinkRegistration(name="shelf", target="s:S", options="s:O", summary="", schemes=("shelf",), output="files")

class Delivery:
    @pytest.fixture
    def place(self):
        return "here"

    def test_flush_is_a_barrier(self, place):
        assert place == "here"

class PaperConformance(Delivery, Conformance):
    kind = "sink"

    def test_close_may_be_called_twice(self):
        pass
"""


def collected(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + text)
    return pytester.runpytest_inprocess("-rxs", "-p", "no:cacheprovider", *arguments)


def test_fixtures_may_be_overridden_and_tests_added(pytester: pytest.Pytester) -> None:
    result = collected(
        pytester,
        """
class Ours(PaperConformance):
    def test_it_is_ours(self): pass

class TestShelf(Ours):
    sink = SHELF

    @pytest.fixture
    def place(self): return "here"
""",
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "def test_flush_is_a_barrier(self): pass",
            "TestShelf.test_flush_is_a_barrier overrides a promise of PaperConformance; delete it, or let it call "
            "super().test_flush_is_a_barrier() and say why it may fail: @pytest.mark.xfail(reason='…')",
        ),
        (
            "test_flush_is_a_barrier = None",
            "TestShelf.test_flush_is_a_barrier = None takes a promise of PaperConformance away; delete the line, or *",
        ),
        (
            "@pytest.mark.xfail\n    def test_flush_is_a_barrier(self): pass",
            "TestShelf.test_flush_is_a_barrier overrides a promise of PaperConformance and is marked xfail without a "
            "reason; write @pytest.mark.xfail(reason='…')",
        ),
        (
            "@pytest.mark.skip(reason=' ')\n    def test_flush_is_a_barrier(self): pass",
            "*is marked skip without a reason; write @pytest.mark.skip(reason='…')",
        ),
        (
            "@pytest.mark.parametrize('n', [1])\n    def test_flush_is_a_barrier(self, n): pass",
            "TestShelf.test_flush_is_a_barrier overrides a promise of PaperConformance; *",
        ),
        (
            "pytestmark = pytest.mark.skip",
            "TestShelf is marked skip without a reason; write @pytest.mark.skip(reason='…')",
        ),
    ],
    ids=["overridden", "deleted", "without-a-reason", "an-empty-reason", "an-unfit-mark", "the-whole-class"],
)
def test_a_promise_that_is_taken_away_is_an_error(pytester: pytest.Pytester, text: str, complaint: str) -> None:
    result = collected(pytester, f"class TestShelf(PaperConformance):\n    sink = SHELF\n    {text}\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([complaint])


def test_a_base_of_the_class_may_not_take_a_promise_away_either(pytester: pytest.Pytester) -> None:
    result = collected(
        pytester,
        """
class Lenient:
    def test_flush_is_a_barrier(self): pass

class TestShelf(Lenient, PaperConformance):
    sink = SHELF
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["Lenient.test_flush_is_a_barrier overrides a promise of PaperConformance; *"])


def test_a_module_that_skips_all_says_why(pytester: pytest.Pytester) -> None:
    result = collected(
        pytester, "pytestmark = pytest.mark.skip\nclass TestShelf(PaperConformance):\n    sink = SHELF\n"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["TestShelf is marked skip without a reason; *"])


def test_a_promise_may_be_overridden_with_a_reason(pytester: pytest.Pytester) -> None:
    result = collected(
        pytester,
        """
class TestShelf(PaperConformance):
    sink = SHELF

    @pytest.mark.xfail(reason="shelves have no barrier")
    def test_flush_is_a_barrier(self): assert False

    @pytest.mark.skip("they are never closed")
    def test_close_may_be_called_twice(self): pass
""",
    )
    result.assert_outcomes(xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["*shelves have no barrier*", "*they are never closed*"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "TestShelf names no sink; set the class attribute sink = 'NAME' (installed: *)"),
        ("    sink = 'cloudstorag'", "TestShelf: there is no sink 'cloudstorag'; did you mean 'cloudstorage'?*"),
        ("    sink = 7", "TestShelf.sink is 7, which is neither the name of an installed sink nor a SinkRegistration"),
    ],
    ids=["none", "unknown", "no-name"],
)
def test_a_suite_says_which_component_it_proves(pytester: pytest.Pytester, text: str, complaint: str) -> None:
    result = collected(pytester, f"class TestShelf(PaperConformance):\n    x = 1\n{text}\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([complaint])


def test_other_classes_of_the_module_are_left_alone(pytester: pytest.Pytester) -> None:
    result = collected(
        pytester,
        """
class TestShelf(PaperConformance):
    sink = SHELF
    test_flush_is_a_barrier = None

class TestOther:
    def test_flush_is_a_barrier(self): pass
""",
        "--continue-on-collection-errors",
    )
    result.assert_outcomes(errors=1, passed=1)
