"""The suite of the component that the command line names: what `pytest --pyargs cdc_conformance` collects."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdc_conformance.components import suite_for
from cdc_conformance.given import Given, Place

__all__ = ["FILE", "GIVEN", "SuiteModule", "module_of", "suite_class"]

FILE = Path(__file__)
"""The file that stands for the suites which are made while pytest runs."""


GIVEN = pytest.StashKey[Given]()
"""Where a run's configuration holds what the command line named."""


class SuiteModule(pytest.Module):
    """A test module that is made, not read from a file: its classes are those of `suites`."""

    suites: ModuleType

    @classmethod
    def of(cls, parent: pytest.Collector, suites: ModuleType) -> SuiteModule:
        module: SuiteModule = cls.from_parent(parent, path=FILE)
        module.suites = suites
        return module

    def _getobj(self) -> ModuleType:
        return self.suites


def module_of(*classes: type) -> ModuleType:
    """Return a module that holds *classes* under their names."""
    module = ModuleType("cdc_conformance.installed")
    for cls in classes:
        setattr(module, cls.__name__, cls)
    return module


def suite_class(given: Given) -> type[Any]:
    """Return the suite of *given*'s kind for this component, its fixtures overridden with what was given."""
    words = [word.capitalize() for word in re.split(r"[^a-z0-9]+", given.name)]
    members: dict[str, Any] = {given.kind: given.name, "__module__": "cdc_conformance.installed"}
    if given.uri:
        members[f"{given.kind}_uri"] = _Fixtures.uri
    if given.options:
        members[f"{given.kind}_options"] = _Fixtures.options
    if given.format:
        members["sink_format"] = _Fixtures.format
    if given.capabilities:
        members["capabilities"] = _Fixtures.capabilities
    return type(f"Test{''.join(words)}", (suite_for(given.kind),), members)


class _Fixtures:
    """What the command line gives, in the form of a suite's fixtures."""

    @pytest.fixture
    def uri(self, cdc_place: Place) -> str:
        return cdc_place.uri

    @pytest.fixture
    def options(self, cdc_place: Place) -> dict[str, str]:
        return dict(cdc_place.options)

    @pytest.fixture
    def format(self, cdc_given: Given) -> str:
        return cdc_given.format

    @pytest.fixture
    def capabilities(self, cdc_given: Given) -> frozenset[str]:
        return cdc_given.capabilities
