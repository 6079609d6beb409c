"""What is generated on the pages of docs is up to date."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT

from cdc_core.options import describe, option

GENERATORS = sorted((ROOT / "docs").glob("generate_*.py"))


@pytest.mark.parametrize("generator", GENERATORS, ids=[path.stem for path in GENERATORS])
def test_the_generated_parts_are_up_to_date(generator: Path) -> None:
    done = subprocess.run([sys.executable, generator, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}run: python docs/{generator.name}"


def test_a_table_of_options_escapes_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Options:
        pin: str = option("a", doc="One | two.", secret=True)

    monkeypatch.syspath_prepend(ROOT / "docs")
    table = importlib.import_module("generate_options").table(describe(Options))
    assert table.splitlines()[2] == "| `pin` | text | a | One \\| two. Secret. |"
