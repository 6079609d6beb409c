"""The suite of the component on the command line, which `pytest --pyargs cdc_conformance` collects."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdc_conformance.components import suite_for
from cdc_conformance.given import Given, Place

FILE = Path(__file__)
"""pytest collects this file and gets suites that are made at run time."""


GIVEN = pytest.StashKey[Given]()
"""Where a run's configuration keeps the component on the command line."""


class SuiteModule(pytest.Module):
    """A test module that is not read from a file: its classes are those of `suites`."""

    suites: ModuleType

    @classmethod
    def of(cls, parent: pytest.Collector, suites: ModuleType) -> SuiteModule:
        module: SuiteModule = cls.from_parent(parent, path=FILE)
        module.suites = suites
        return module

    def _getobj(self) -> ModuleType:
        return self.suites


def module_of(*classes: type) -> ModuleType:
    """Return a module with *classes*."""
    module = ModuleType("cdc_conformance.installed")
    for cls in classes:
        setattr(module, cls.__name__, cls)
    return module


def suite_class(given: Given) -> type[Any]:
    """Return a test class for *given*: the suite of its kind, with URI, options and capabilities overridden."""
    words = [word.capitalize() for word in re.split(r"[^a-z0-9]+", given.name)]
    members: dict[str, Any] = {given.kind: given.name, "__module__": "cdc_conformance.installed"}
    if given.uri:
        members[f"{given.kind}_uri"] = _Fixtures.uri
    if given.options:
        members[f"{given.kind}_options"] = _Fixtures.options
    if given.format:
        members["sink_format"] = _Fixtures.format
    if given.capabilities:
        members["capabilities"] = given.capabilities
    return type(f"Test{''.join(words)}", (suite_for(given.kind),), members)


class _Fixtures:
    """The command line's values as fixtures of a suite."""

    @pytest.fixture
    def uri(self, cdc_place: Place) -> str:
        return cdc_place.uri

    @pytest.fixture
    def options(self, cdc_place: Place) -> dict[str, str]:
        return dict(cdc_place.options)

    @pytest.fixture
    def format(self, cdc_given: Given) -> str:
        return cdc_given.format
