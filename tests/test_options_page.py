"""The page of options has every component of ours."""

from __future__ import annotations

from pathlib import Path

from cdc_testing.imports import ROOT


def test_every_first_party_component_is_on_the_page() -> None:
    page = Path(ROOT / "docs" / "options.md").read_text()
    encoders = ("Encoder avro", "Encoder csv", "Encoder json", "Encoder parquet", "Encoder protobuf")
    for heading in ("Every changefeed", *encoders, "Source postgres", "Sink cloudstorage", "Sink kafka"):
        assert f"## {heading}\n" in page
