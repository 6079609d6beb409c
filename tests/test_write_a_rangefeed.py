"""The pages for authors of rangefeeds are correct: they show the files of a new repository."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cdc_conformance import RangefeedConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import Rangefeed, SliceReader, SourceHistory, StepPlanner

PAGE = Page("write-a-rangefeed.md")
CONTRACT = Page("rangefeed-contract.md")
PARTS = [Rangefeed, StepPlanner, SliceReader, SourceHistory]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new repository, made as the page says and installed in its directory `site`."""
    made = create(Names.of("rangefeed", "journal"), tmp_path_factory.mktemp("reader") / "journal")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", made / "site", made], check=True, stdin=subprocess.DEVNULL
    )
    return made


def test_the_page_shows_pieces_of_the_files_of_a_new_repository(repository: Path) -> None:
    shown = {path: text.partition("\n")[2] for path, text in PAGE.files().items()}
    assert {Path(path).name for path in shown} == {"rangefeed.py", "planner.py", "reader.py", "test_conformance.py"}
    for path, text in shown.items():
        assert text in (repository / path).read_text(), path  # .ci/check_outside.py runs its suite


def test_the_rangefeed_of_the_page_is_found(repository: Path) -> None:
    done = PAGE.run(repository, "cdc_core", "options", "rangefeed", "journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "How often the clock of an idle source is read." in done.stdout


def test_the_entry_point_on_the_page_is_that_of_a_new_repository(repository: Path) -> None:
    (shown,) = map(tomllib.loads, PAGE.blocks("toml"))
    declared = tomllib.loads((repository / "pyproject.toml").read_text())
    assert shown["project"]["entry-points"] == declared["project"]["entry-points"]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_methods_that_must_be_written_are_listed(part: type) -> None:
    row = re.search(rf"^\| `{part.__name__}` \|[^|]*\|([^|]*)\|$", PAGE.section("2. Understand the four parts"), re.M)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == getattr(part, "__abstractmethods__", set())


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_method_is_in_the_table_of_calls(part: type) -> None:
    calls = re.findall(rf"`{part.__name__}`.*", CONTRACT.section("How the engine uses a rangefeed"))
    told = {name for row in calls for name in re.findall(r"`(\w+)`", row)}
    methods = {name for name in vars(part) if not name.startswith("_") and callable(getattr(part, name))}
    assert methods - told <= {"position_of"}  # `cdc trace` calls it while a slice is read


def test_every_fixture_that_is_named_exists() -> None:
    assert CONTRACT.no_fixtures(RangefeedConformance) == {"id", "n", "note"}
