"""Who may import whom. The tree itself is checked, and the checker is checked on trees that break the rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT, core_violations, plugin_violations

HEAVY = ("pyspark", "py4j", "polars", "fsspec", "psycopg", "adbc_driver_postgresql", "pytest", "pandas")


def test_the_core_imports_no_plugin_and_only_the_engine_imports_spark() -> None:
    assert core_violations(ROOT) == []


def test_plugin_modules_only_describe() -> None:
    assert plugin_violations(ROOT) == []


@pytest.mark.parametrize(
    "module",
    ["cdc_core", "cdc_core.cli.main", "cdc_core.config.resolved", "cdc_core.plugins.host", "cdc_core.store.progress"],
)
def test_importing_the_core_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") & set(HEAVY) == set()


def test_loading_every_plugin_loads_nothing_heavy() -> None:
    found = loaded_by("from cdc_core.plugins.host import PluginHost; PluginHost.load()")
    assert found & set(HEAVY) == set()


def test_the_values_of_the_core_load_no_database_or_terminal_library() -> None:
    assert loaded_by("import cdc_core") & {"sqlalchemy", "rich", "click"} == set()


@pytest.mark.parametrize(
    ("place", "text", "complaint"),
    [
        (
            "cdc_core/config/resolved.py",
            "def f():\n    import cdc_sink_x.sink\n",
            "cdc_core/config/resolved.py:2 imports the plugin package cdc_sink_x",
        ),
        (
            "cdc_core/config/resolved.py",
            "from pyspark.sql import Row\n",
            "cdc_core/config/resolved.py:1 imports pyspark; only cdc_core/spark may",
        ),
        (
            "cdc_core/config/resolved.py",
            "import cdc_core.spark.runner\n",
            "cdc_core/config/resolved.py:1 imports cdc_core.spark.runner",
        ),
        ("cdc_core/spark/a.py", "import cdc_sink_x\n", "cdc_core/spark/a.py:1 imports the plugin package cdc_sink_x"),
    ],
)
def test_the_checker_sees_what_the_core_must_not_import(tmp_path: Path, place: str, text: str, complaint: str) -> None:
    tree(tmp_path, {place: text})
    (found,) = core_violations(tmp_path)
    assert found.startswith(complaint)


@pytest.mark.parametrize("text", ["import fsspec", "from cdc_sink_x.sink import Sink", "from . import sink"])
def test_the_checker_sees_what_a_plugin_module_must_not_import(tmp_path: Path, text: str) -> None:
    tree(tmp_path, {"sinks/x/src/cdc_sink_x/plugin.py": text})
    (found,) = plugin_violations(tmp_path)
    assert found.startswith("sinks/x/src/cdc_sink_x/plugin.py:1 imports")


def test_the_checker_allows_what_is_allowed(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "cdc_core/spark/a.py": "import pyspark\nimport cdc_core.spark.b",
            "cdc_core/config/resolved.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\n",
            "sinks/x/src/cdc_sink_x/plugin.py": "import os\nimport pluggy\nfrom cdc_core import hookimpl",
        },
    )
    assert core_violations(tmp_path) + plugin_violations(tmp_path) == []


def tree(root: Path, files: dict[str, str]) -> None:
    for place, text in {"sinks/x/src/cdc_sink_x/__init__.py": "", **files}.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has after *statement*."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())
