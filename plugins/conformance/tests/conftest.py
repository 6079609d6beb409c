"""Runs of pytest inside of tests, and a simulated database."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase

for suites in ("encoders", "functions", "sinks"):
    importlib.import_module(f"cdc_conformance.{suites}")  # once, and not in each of these runs


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Load the kit's own plugin only: those of other distributions take most of the time of such a run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "cdc_conformance.pytest_plugin")
    return pytester


@pytest.fixture
def db(tmp_path: Path) -> SimulatedDatabase:
    """A database with the table t, which is empty."""
    db = SimulatedDatabase.create(tmp_path / "db", seed=2)
    db.create_table("t")
    return db
