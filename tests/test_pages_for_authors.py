"""The pages for authors of plugins are correct: they show the files of a new repository, and name every method."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance import EncoderConformance, RangefeedConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import (
    Decoder,
    Destination,
    Encoder,
    Rangefeed,
    ResolvedSink,
    Sink,
    SliceReader,
    SourceHistory,
    StepPlanner,
)
from cdc_core.envelope import ENVELOPES


@dataclass(frozen=True)
class Pages:
    """The tutorial and the contract of a kind of plugin."""

    tutorial: Page
    contract: Page
    parts: tuple[type, ...]


ENCODER = Pages(Page("write-an-encoder.md"), Page("encoder-contract.md"), (Encoder, Decoder))
RANGEFEED = Pages(
    Page("write-a-rangefeed.md"),
    Page("rangefeed-contract.md"),
    (Rangefeed, StepPlanner, SliceReader, SourceHistory),
)
SINK = Pages(Page("write-a-sink.md"), Page("sink-contract.md"), (Sink, ResolvedSink, Destination))


@pytest.mark.parametrize(
    ("kind", "name", "pages", "files"),
    [
        ("encoder", "form", ENCODER, {"encoder.py", "decoder.py", "plugin.py", "test_conformance.py"}),
        ("rangefeed", "journal", RANGEFEED, {"rangefeed.py", "planner.py", "reader.py", "test_conformance.py"}),
    ],
    ids=["encoder", "rangefeed"],
)
def test_the_page_shows_pieces_of_the_files_of_a_new_repository(
    kind: str, name: str, pages: Pages, files: set[str], tmp_path: Path
) -> None:
    made = create(Names.of(kind, name), tmp_path / name)
    shown = {path: text.partition("\n")[2] for path, text in pages.tutorial.files().items()}
    assert {Path(path).name for path in shown} == files
    for path, text in shown.items():
        assert text in (made / path).read_text(), path  # .ci/check_outside.py runs its suite
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    (project,) = (found for text in pages.tutorial.blocks("toml") if (found := tomllib.loads(text).get("project")))
    assert project["entry-points"] == declared["entry-points"]


def test_the_rangefeed_of_the_page_is_found(tmp_path: Path) -> None:
    made = create(Names.of("rangefeed", "journal"), tmp_path / "journal")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", made / "site", made], check=True, stdin=subprocess.DEVNULL
    )
    done = RANGEFEED.tutorial.run(made, "cdc_core", "options", "rangefeed", "journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "How often the clock of an idle source is read." in done.stdout


@pytest.mark.parametrize(
    ("pages", "part"),
    [(pages, part) for pages in (ENCODER, RANGEFEED, SINK) for part in pages.parts],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_methods_that_must_be_written_are_listed(pages: Pages, part: Any) -> None:
    row = re.search(rf"^\| `{part.__name__}` \|(?:.*\|)?([^|]*)\|$", pages.tutorial.text, re.M)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == getattr(part, "__abstractmethods__", set())


@pytest.mark.parametrize(
    ("pages", "section", "untold"),
    [
        (SINK, "How the engine uses a sink", {"admit", "add_topics", "topic_of", "close"}),
        (RANGEFEED, "How the engine uses a rangefeed", {"position_of"}),  # while `cdc trace` reads a slice
    ],
    ids=["sink", "rangefeed"],
)
def test_every_method_is_in_the_table_of_calls(pages: Pages, section: str, untold: set[str]) -> None:
    calls = pages.contract.section(section)
    for part in pages.parts:
        methods = {name for name in vars(part) if not name.startswith("_") and callable(getattr(part, name))}
        told = {name for row in re.findall(rf"`{part.__name__}`.*", calls) for name in re.findall(r"`(\w+)`", row)}
        assert methods - told <= untold, part


def test_every_fixture_that_is_named_exists() -> None:
    assert ENCODER.contract.no_fixtures(EncoderConformance) == set()
    assert RANGEFEED.contract.no_fixtures(RangefeedConformance) == {"id", "n", "note"}


def test_every_envelope_is_explained() -> None:
    assert set(ENCODER.contract.first_cells("Envelopes")) == set(ENVELOPES)
