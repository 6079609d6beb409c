"""What a test class that inherits from a suite may override, and what is refused at collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cdc_conformance.guard import complaint
from cdc_conformance.reference.sink import REFERENCE_SINK

pytest_plugins = ["pytester"]

HEAD = """
import pytest
from cdc_conformance import Conformance
from cdc_conformance.reference.sink import REFERENCE_SINK as SHELF

class Delivery:
    @pytest.fixture
    def place(self):
        return "here"

    def test_flush_is_a_barrier(self, place):
        assert place == "here"

class PaperConformance(Delivery, Conformance):
    kind = "sink"
    reserved = frozenset({"rig"})
    known_capabilities = {"stall": "it can be stopped"}

    def test_close_may_be_called_twice(self):
        pass
"""
_SUITE: dict[str, Any] = {"__name__": "suite"}
exec(HEAD, _SUITE)
PaperConformance: type[Any] = _SUITE["PaperConformance"]
SHELF = REFERENCE_SINK


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


class Lenient:
    def test_flush_is_a_barrier(self, place: str) -> None: ...


REMEDY = "call super().test_flush_is_a_barrier() and give a reason: @pytest.mark.xfail(reason='…')"


def a_test(*marks: Any) -> Callable[..., None]:
    def test_flush_is_a_barrier(self: object, place: str) -> None: ...

    for mark in marks:
        mark(test_flush_is_a_barrier)
    return test_flush_is_a_barrier


BARRIER = "test_flush_is_a_barrier"
OVERRIDES = "{0}.test_flush_is_a_barrier overrides a promise of PaperConformance; delete it, or " + REMEDY
MARKED = (
    "TestShelf.test_flush_is_a_barrier overrides a promise of PaperConformance and is marked {0} without a reason; "
    "write @pytest.mark.{0}(reason='…')"
)
RESERVED = "TestShelf.rig overrides a reserved fixture of PaperConformance; give it another name"
RULES: dict[str, tuple[dict[str, Any], str | None]] = {
    "overridden": ({BARRIER: a_test()}, OVERRIDES.format("TestShelf")),
    "deleted": (
        {BARRIER: None},
        "TestShelf.test_flush_is_a_barrier = None removes a promise of PaperConformance; delete the line, or write a "
        "test instead: " + REMEDY,
    ),
    "no-reason": ({BARRIER: a_test(pytest.mark.xfail)}, MARKED.format("xfail")),
    "empty-reason": ({BARRIER: a_test(pytest.mark.skip(reason=" "))}, MARKED.format("skip")),
    "unfit-mark": ({BARRIER: a_test(pytest.mark.parametrize("n", [1]))}, OVERRIDES.format("TestShelf")),
    "class-without-a-reason": (
        {"pytestmark": pytest.mark.skip},
        "TestShelf is marked skip without a reason; write @pytest.mark.skip(reason='…')",
    ),
    "by-a-base": ({"base": Lenient}, OVERRIDES.format("Lenient")),
    "not-a-name": (
        {"sink": 7},
        "TestShelf.sink is 7, which is neither the name of an installed sink nor a SinkRegistration",
    ),
    "a-suite-of-its-own": ({"kind": "sink", BARRIER: a_test()}, OVERRIDES.format("TestShelf")),
    "reserved": ({"rig": pytest.fixture(lambda _: None)}, RESERVED),
    "reserved-by-name": ({"ours": pytest.fixture(name="rig")(lambda _: None)}, RESERVED),
    "unknown-capability": (
        {"capabilities": {"stal"}},
        "TestShelf declares the capability 'stal', which no sink has; did you mean 'stall'?",
    ),
    "capabilities-as-a-fixture": (
        {"capabilities": pytest.fixture(lambda _: {"stall"})},
        "TestShelf.capabilities is a fixture; make it a class attribute: capabilities = {'…'}",
    ),
    "capability": ({"capabilities": {"stall"}}, None),
    "fixtures-and-own-tests": ({"place": None, "test_of_its_own": a_test(pytest.mark.skip)}, None),
    "xfail": ({BARRIER: a_test(pytest.mark.xfail(reason="they bend"))}, None),
    "skip": ({BARRIER: a_test(pytest.mark.skip("they bend"))}, None),
    "class-with-a-reason": ({"pytestmark": [pytest.mark.xfail(reason="they bend")]}, None),
}


@pytest.mark.parametrize(("members", "said"), RULES.values(), ids=RULES)
def test_the_rules_of_test_classes(members: dict[str, Any], said: str | None) -> None:
    bases = [members[name] for name in members if name == "base"]
    assert complaint(type("TestShelf", (*bases, PaperConformance), {"sink": SHELF, **members})) == said


def test_a_module_that_skips_everything_needs_a_reason(pytester: pytest.Pytester) -> None:
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
    ("sink", "said"),
    [
        ("", "TestShelf names no sink; set the class attribute sink = 'NAME' (installed: "),
        ("cloudstorag", "TestShelf: there is no sink 'cloudstorag'; did you mean 'cloudstorage'?"),
    ],
    ids=["none", "unknown"],
)
def test_a_test_class_must_name_its_component(sink: str, said: str) -> None:
    assert (complaint(type("TestShelf", (PaperConformance,), {"sink": sink})) or "").startswith(said)


def test_a_broken_rule_is_a_collection_error_of_its_class_only(pytester: pytest.Pytester) -> None:
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
    result.stdout.fnmatch_lines(["TestShelf.test_flush_is_a_barrier = None removes a promise of PaperConformance; *"])
