"""What a test class that inherits from a suite may not do.

It may override any fixture, except those that build and observe the component. It may override a promise only with a
reason, `@pytest.mark.xfail(reason=…)` or a skip mark; the report never counts such a promise as kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Conformance, promises_of, suite_of
from cdc_core import ConfigError, did_you_mean

_WAIVERS = ("xfail", "skip", "skipif")


def complaint(cls: type, *, module_marks: Iterable[Any] = ()) -> str | None:
    """Return what is wrong with a test class that inherits from a suite; None if nothing is.

    *module_marks* is the `pytestmark` of its module.
    """
    suite = suite_of(cls)
    if suite is None:
        return None
    for name in promises_of(suite):
        wrong = _overridden(cls, suite, name)
        if wrong:
            return wrong
    for base in cls.__mro__:
        taken = [] if base in suite.__mro__ else sorted(suite.reserved & _names(base))
        if taken:
            return f"{base.__name__}.{taken[0]} overrides a reserved fixture of {suite.__name__}; give it another name"
    wrong = _capabilities(cls, suite)
    if wrong:
        return wrong
    of_classes = [mark for base in cls.__mro__ if base not in suite.__mro__ for mark in _marks(base)]
    for mark in [*of_classes, *_listed(module_marks)]:
        if mark.name in _WAIVERS and not _reason(mark):
            return f"{cls.__name__} is marked {mark.name} without a reason; write @pytest.mark.{mark.name}(reason='…')"
    try:
        registration_of(cls, suite.kind)
    except ConfigError as error:
        return str(error)
    return None


def waiver(cls: type, test: str) -> str | None:
    """Return the reason why *cls* overrides the promise *test*; None if it does not override it."""
    suite = suite_of(cls)
    if suite is None or test not in promises_of(suite):
        return None
    member = inspect.getattr_static(cls, test)
    if member is inspect.getattr_static(suite, test):
        return None
    return next((_reason(mark) for mark in _marks(member) if mark.name in _WAIVERS and _reason(mark)), None)


def _names(cls: type) -> set[str]:
    """Return the names that a class itself defines, and the names of its fixtures."""
    return {*vars(cls), *(getattr(value, "name", "") for value in vars(cls).values() if _is_fixture(value))}


def _is_fixture(value: object) -> bool:
    return type(value).__module__ == pytest.fixture.__module__


def _capabilities(cls: type[Conformance], suite: type[Conformance]) -> str | None:
    declared = cls.capabilities
    if _is_fixture(declared):
        return f"{cls.__name__}.capabilities is a fixture; make it a class attribute: capabilities = {{'…'}}"
    for name in sorted(set(declared) - suite.known_capabilities.keys()):
        return (
            f"{cls.__name__} declares the capability '{name}', which no {suite.kind} has"
            f"{did_you_mean(name, suite.known_capabilities)}"
        )
    return None


def _overridden(cls: type, suite: type[Conformance], name: str) -> str | None:
    member = inspect.getattr_static(cls, name)
    if member is inspect.getattr_static(suite, name):
        return None
    owner = next(base for base in cls.__mro__ if name in vars(base)).__name__
    remedy = f"call super().{name}() and give a reason: @pytest.mark.xfail(reason='…')"
    if not inspect.isfunction(member):
        return (
            f"{owner}.{name} = {member!r} removes a promise of {suite.__name__}; delete the line, or write a test "
            f"instead: {remedy}"
        )
    marks = [mark for mark in _marks(member) if mark.name in _WAIVERS]
    if not marks:
        return f"{owner}.{name} overrides a promise of {suite.__name__}; delete it, or {remedy}"
    if not any(_reason(mark) for mark in marks):
        return (
            f"{owner}.{name} overrides a promise of {suite.__name__} and is marked {marks[0].name} without a reason; "
            f"write @pytest.mark.{marks[0].name}(reason='…')"
        )
    return None


def _marks(owner: Any) -> list[pytest.Mark]:
    """Return the marks of a class or function itself, without inherited ones."""
    return _listed(vars(owner).get("pytestmark", ()))


def _listed(marks: Any) -> list[pytest.Mark]:
    several = marks if isinstance(marks, Iterable) else [marks]
    return [mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in several]


def _reason(mark: pytest.Mark) -> str:
    reason = mark.kwargs.get("reason") or (mark.args[0] if mark.name == "skip" and mark.args else "")
    return str(reason).strip()
