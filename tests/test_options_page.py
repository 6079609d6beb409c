"""The generated tables of options match the code."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from cdc_testing.imports import ROOT

from cdc_core.options import describe, option


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cdc_generate_options", ROOT / "docs" / "generate_options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_tables_are_up_to_date() -> None:
    stale = [path for path, text in generator().generated() if not path.exists() or path.read_text() != text]
    assert stale == [], "run: python docs/generate_options.py"


def test_a_table_escapes_pipes() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Options:
        pin: str = option("a", doc="One | two.", secret=True)

    assert generator().table(describe(Options)).splitlines()[2] == "| `pin` | text | a | One \\| two. Secret. |"


def test_every_first_party_component_is_on_the_page() -> None:
    page = Path(ROOT / "docs" / "options.md").read_text()
    encoders = ("Encoder avro", "Encoder csv", "Encoder json", "Encoder parquet", "Encoder protobuf")
    for heading in ("Every changefeed", *encoders, "Source postgres", "Sink cloudstorage", "Sink kafka"):
        assert f"## {heading}\n" in page
