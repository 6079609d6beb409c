"""docs/write-a-rangefeed.md is correct: its files make a rangefeed that keeps every promise."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cdc_conformance import RangefeedConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import Rangefeed, RangefeedContext, RangefeedRegistration, SliceReader, SourceHistory, StepPlanner

PAGE = Page("write-a-rangefeed.md")
PARTS = [Rangefeed, StepPlanner, SliceReader, SourceHistory]


def methods(part: type) -> set[str]:
    return {name for name in vars(part) if not name.startswith("_") and callable(getattr(part, name))}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new repository, made as the page says and installed in its directory `site`."""
    made = create(Names.of("rangefeed", "journal"), tmp_path_factory.mktemp("reader") / "journal")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", made / "site", made], check=True, stdin=subprocess.DEVNULL
    )
    return made


def test_the_page_shows_the_files_of_a_new_repository(repository: Path) -> None:
    modules = [path for path in (repository / "src").rglob("*.py") if path.name != "__init__.py"]
    created = {str(path.relative_to(repository)): path.read_text() for path in (*modules, *repository.glob("tests/*"))}
    shown = {path: text.partition("\n")[2] for path, text in PAGE.files().items()}
    assert shown == created  # .ci/check_outside.py runs its suite


def test_the_rangefeed_of_the_page_is_found(repository: Path) -> None:
    done = PAGE.run(repository, "cdc_core", "options", "rangefeed", "journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "How often the clock of an idle journal is read." in done.stdout


def test_the_entry_point_on_the_page_is_that_of_a_new_repository(repository: Path) -> None:
    (shown,) = map(tomllib.loads, PAGE.blocks("toml"))
    declared = tomllib.loads((repository / "pyproject.toml").read_text())
    assert shown["project"]["entry-points"] == declared["project"]["entry-points"]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_method_is_explained(part: type) -> None:
    explained = set(re.findall(r"^\*\*`(\w+)\(", PAGE.section(part.__name__), re.M))
    assert explained - {"__init__"} == methods(part)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_methods_that_must_be_written_are_listed(part: type) -> None:
    row = re.search(rf"^\| `{part.__name__}` \|[^|]*\|([^|]*)\|([^|]*)\|$", PAGE.section("What you write"), re.M)
    assert row is not None
    required, optional = (set(re.findall(r"`(\w+)`", cell)) for cell in row.groups())
    assert required == getattr(part, "__abstractmethods__", set())
    assert optional == methods(part) - required


def test_every_fixture_that_is_named_exists() -> None:
    assert PAGE.no_fixtures(RangefeedConformance) == {"pytest", "id", "n", "note"}


def test_every_field_of_context_and_registration_is_explained() -> None:
    assert set(PAGE.first_cells("Registration")) == {field.name for field in dataclasses.fields(RangefeedRegistration)}
    context = PAGE.section("How the engine uses a rangefeed").partition("`self.context` contains")[2]
    explained = set(re.findall(r"^\| `(\w+)` \|", context, re.M))
    assert explained == {field.name for field in dataclasses.fields(RangefeedContext)}
