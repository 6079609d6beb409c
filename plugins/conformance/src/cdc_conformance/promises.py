"""What all suites share: a promise is a test method. Its name is the promise, its docstring the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest

REQUIRES = "cdc_requires"
"""Name of the marker that `requires` puts on a test."""
APPLIES = "cdc_applies"
"""Name of the marker that `applies_if` puts on a test."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Condition:
    """What a component must have registered for a promise to apply."""

    holds: Callable[[type[Any]], bool]
    """Takes the test class, which names the component."""
    otherwise: str
    """Why the promise does not apply, such as "the sink registers no history"."""


class DoesNotApply(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """Raised by `does_not_apply`."""


class Conformance:
    """Base of every suite: `class SinkConformance(Lifecycle, Delivery, Conformance): kind = "sink"`.

    A class that sets `kind` is a suite, and its `test_` methods are promises. A test class that inherits from a suite
    names its component in the class attribute that `kind` names. It may override fixtures, but promises only with a
    reason.

    Promises of a capability that the test class does not declare are not collected, and neither are promises that do
    not apply to the component's registration. The report lists them as not declared.
    """

    kind: ClassVar[str] = ""
    """"sink", "encoder", "rangefeed" or "function"; also the name of the class attribute that names the component."""
    capabilities: ClassVar[Collection[str]] = frozenset()
    """What the component can do beyond what every component must do; names from `known_capabilities`."""
    known_capabilities: ClassVar[Mapping[str, str]] = {}
    """What `capabilities` may name, and what each of them means."""
    capability_fixtures: ClassVar[Mapping[str, str]] = {}
    """The fixture that a test class must override to declare a capability, if there is one."""
    fixture_conditions: ClassVar[Mapping[str, Condition]] = {}
    """Conditions of all promises that use a fixture, by the fixture's name."""
    summaries: ClassVar[frozenset[str]] = frozenset()
    """Promises that summarize others: a component that breaks one of those may break these too."""
    reserved: ClassVar[frozenset[str]] = frozenset()
    """Fixtures that build and observe the component. Test classes may not override them."""


def constant(value: object) -> Any:
    """Return a fixture of a test class that is a copy of *value* for each test."""
    return pytest.fixture(lambda _: copy(value))


def missing(remedy: str) -> Any:
    """Return a fixture that a test class must override: a test that needs it fails, and *remedy* says what to do."""
    return pytest.fixture(lambda _: pytest.fail(remedy, pytrace=False))


def suite_of(cls: type) -> type[Conformance] | None:
    """Return the suite that *cls* is or inherits from: the most basic class that sets `kind`.

    A test class that sets `kind` again is not a suite of its own.
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
    """Collect the test only for components that declare *capability*. *reason* says what the test needs it for."""
    mark: pytest.MarkDecorator = getattr(pytest.mark, REQUIRES)
    return mark(capability, reason)


def applies_if(condition: Condition) -> Callable[[T], T]:
    """Collect the test, or all tests that a class itself defines, only for components that meet *condition*."""
    mark: pytest.MarkDecorator = getattr(pytest.mark, APPLIES)

    def decorate(target: T) -> T:
        tests = [target]
        if inspect.isclass(target):
            tests = [member for name, member in vars(target).items() if name.startswith("test_")]
        for test in tests:
            mark.with_args(condition)(test)
        return target

    return decorate


def conditions_of(cls: type, test: str) -> list[Condition]:
    """Return the conditions that `applies_if` puts on a test of *cls*."""
    marks = getattr(getattr(cls, test), "pytestmark", [])
    return [mark.args[0] for mark in marks if mark.name == APPLIES]


def does_not_apply(reason: str) -> NoReturn:
    """End a test whose promise does not apply to the component, for a reason that only the running test can find out.

    The report lists the promise as not declared.
    """
    raise DoesNotApply(reason)


def why_not_declared(item: pytest.Function) -> str | None:
    """Return why the promise of *item* is not declared by its test class; None if it is, or if there is no suite."""
    cls = item.cls
    suite = None if cls is None else suite_of(cls)
    if suite is None or cls is None:
        return None
    for mark in item.iter_markers(REQUIRES):
        capability, reason = mark.args
        if capability not in cls.capabilities:
            return f"needs the capability '{capability}': {reason}"
    conditions = [mark.args[0] for mark in item.iter_markers(APPLIES)]
    conditions += [suite.fixture_conditions[name] for name in item.fixturenames if name in suite.fixture_conditions]
    return next((condition.otherwise for condition in conditions if not condition.holds(cls)), None)
