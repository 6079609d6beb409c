"""What the suites share: a promise is a test method, its name the promise and its docstring the contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import pytest

from cdc_core.options import did_you_mean

__all__ = ["MARK", "Conformance", "missing_capability", "promises_of", "requires", "suite_of", "words"]

MARK = "cdc_requires"
"""Name of the marker that `requires` puts on a test."""


class Conformance:
    """Base of every suite: `class SinkConformance(Lifecycle, Delivery, Conformance): kind = "sink"`.

    A class that sets `kind` is a suite, and all its `test_` methods are promises. Whoever inherits from it sets the
    class attribute that is called like the kind, and may override fixtures, but no promise without a reason.
    """

    kind: ClassVar[str] = ""
    """"sink", "encoder" or "rangefeed"; also the name of the class attribute that says which component it is."""
    known_capabilities: ClassVar[Mapping[str, str]] = {}
    """What may be declared in `capabilities`: name -> what a component that declares it can do."""
    capability_fixtures: ClassVar[Mapping[str, str]] = {}
    """Capabilities that nobody can prove without a fixture of their own: name -> fixture."""
    summaries: ClassVar[frozenset[str]] = frozenset()
    """Promises that sum up others: whoever breaks one of those may break them too."""
    reserved: ClassVar[frozenset[str]] = frozenset({"_only_what_is_declared"})
    """Fixtures by which a suite builds and watches the component itself: nobody overrides them."""

    @pytest.fixture
    def capabilities(self) -> Collection[str]:
        """What the component declares beyond what every one must do; names of `known_capabilities`."""
        return frozenset()

    @pytest.fixture(autouse=True)
    def _only_what_is_declared(self, request: pytest.FixtureRequest, capabilities: Collection[str]) -> None:
        known = self.known_capabilities
        for name in sorted(set(capabilities) - known.keys()):
            pytest.fail(
                f"{type(self).__name__} declares the capability '{name}', which no {self.kind} has"
                f"{did_you_mean(name, known)}"
            )
        why = missing_capability(request.node, capabilities)
        if why is not None:
            pytest.skip(why)


def suite_of(cls: type) -> type[Conformance] | None:
    """Return the suite that *cls* is or inherits from: the first of its ancestors that says a kind.

    A test class that says its kind once more is no suite of its own.
    """
    for base in reversed(cls.__mro__):
        if issubclass(base, Conformance) and base.__dict__.get("kind"):
            return base
    return None


def promises_of(suite: type) -> tuple[str, ...]:
    """Return the names of all promises of *suite*, in the order of its bases."""
    names: dict[str, None] = {}
    for base in suite.__mro__:
        names |= dict.fromkeys(name for name in vars(base) if name.startswith("test_"))
    return tuple(names)


def words(test: str) -> str:
    """Return a promise in words: `test_flush_is_a_barrier[json]` is "flush is a barrier [json]"."""
    name, bracket, rest = test.partition("[")
    return name.removeprefix("test_").replace("_", " ") + (f" {bracket}{rest}" if bracket else "")


def requires(capability: str, reason: str) -> pytest.MarkDecorator:
    """Run the test only for plugins that declare *capability*; *reason* says what the test needs it for.

    Without it the test is reported as skipped, with the capability and the reason.
    """
    mark: pytest.MarkDecorator = getattr(pytest.mark, MARK)
    return mark(capability, reason)


def missing_capability(item: pytest.Item, declared: Collection[str]) -> str | None:
    """Return why *item* cannot run with the *declared* capabilities, None when it can."""
    for mark in item.iter_markers(MARK):
        capability, reason = mark.args
        if capability not in declared:
            return f"needs the capability '{capability}', which is not declared: {reason}"
    return None
