"""Runs of pytest inside of tests."""

from __future__ import annotations

import importlib

import pytest

for suites in ("encoders", "functions", "sinks"):
    importlib.import_module(f"cdc_conformance.{suites}")  # once, and not in each of these runs


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Load the kit's own plugin only: those of other distributions take most of the time of such a run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "cdc_conformance.pytest_plugin")
    return pytester
