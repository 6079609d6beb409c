"""What is generated on the pages of docs is up to date."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cdc_conformance.components import SUITES, suite_for
from cdc_conformance.promises import promises_of
from cdc_testing.imports import ROOT

from cdc_core.options import describe, option
from cdc_core.plugins.host import PluginHost


def test_the_generated_parts_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    assert importlib.import_module("generate").main(only_check=True) == 0, capsys.readouterr().err


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


def test_every_first_party_component_is_on_the_page() -> None:
    page = Path(ROOT / "docs" / "options.md").read_text()
    encoders = ("Encoder avro", "Encoder csv", "Encoder json", "Encoder parquet", "Encoder protobuf")
    for heading in ("Every changefeed", *encoders, "Source postgres", "Sink cloudstorage", "Sink kafka"):
        assert f"## {heading}\n" in page


@pytest.mark.parametrize("kind", SUITES)
def test_every_promise_is_on_the_page_of_its_kind_once_with_its_meaning(kind: str) -> None:
    page = (ROOT / "docs" / f"promises-{kind}s.md").read_text()
    rows = re.findall(r"^\| .+ \| (.*) \| `(test_\w+)` \|$", page, re.MULTILINE)
    assert sorted(test for _, test in rows) == sorted(promises_of(suite_for(kind)))
    assert all(meaning.rstrip(".") for meaning, _ in rows)
