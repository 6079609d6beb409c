"""What is generated on the pages of docs is up to date."""

from __future__ import annotations

import importlib
import runpy
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT

from cdc_core.options import describe, option
from cdc_core.plugins.host import PluginHost

GENERATORS = sorted((ROOT / "docs").glob("generate_*.py"))


@pytest.mark.parametrize("generator", GENERATORS, ids=[path.stem for path in GENERATORS])
def test_the_generated_parts_are_up_to_date(
    generator: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setattr(sys, "argv", [str(generator), "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(generator), run_name="__main__")
    assert ended.value.code == 0, f"{capsys.readouterr().err}run: python docs/{generator.name}"


def test_a_table_of_options_escapes_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Options:
        pin: str = option("a", doc="One | two.", secret=True)

    monkeypatch.syspath_prepend(ROOT / "docs")
    table = importlib.import_module("generate_options").table(describe(Options))
    assert table.splitlines()[2] == "| `pin` | text | a | One \\| two. Secret. |"


def test_a_plugin_that_is_not_installed_ends_the_generator_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    absent = importlib.import_module("generate_options").absent
    listing = PluginHost.load().listing()
    assert absent(ROOT, listing) == []
    kafka = "cdc-sink-kafka"
    broken = [replace(found, problem="no") if found.distribution == kafka else found for found in listing]
    assert absent(ROOT, broken) == [f"{kafka} cannot be used: no"]
    assert absent(ROOT, [found for found in listing if found.distribution != kafka]) == [f"{kafka} is not installed"]
