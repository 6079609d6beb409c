"""The pages for authors of encoders are correct: they show the files of a new repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from cdc_conformance import EncoderConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import Decoder, Encoder
from cdc_core.envelope import ENVELOPES

PAGE = Page("write-an-encoder.md")
CONTRACT = Page("encoder-contract.md")


def test_the_page_shows_pieces_of_the_files_of_a_new_repository(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    shown = {path: text.partition("\n")[2] for path, text in PAGE.files().items()}
    assert {Path(path).name for path in shown} == {"encoder.py", "decoder.py", "plugin.py", "test_conformance.py"}
    for path, text in shown.items():
        assert text in (made / path).read_text(), path


def test_the_entry_point_of_the_page_is_the_created_one(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    (shown,) = (project for text in PAGE.blocks("toml") if (project := tomllib.loads(text).get("project")))
    assert shown["entry-points"] == declared["entry-points"]


@pytest.mark.parametrize("part", [Encoder, Decoder])
def test_the_methods_that_must_be_written_are_listed(part: type[Encoder | Decoder]) -> None:
    row = re.search(rf"^\| `{part.__name__}` \| (.*?) \|$", PAGE.text, re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == part.__abstractmethods__


def test_every_envelope_is_explained() -> None:
    assert set(CONTRACT.first_cells("Envelopes")) == set(ENVELOPES)


def test_every_named_fixture_exists() -> None:
    assert CONTRACT.no_fixtures(EncoderConformance) == set()
