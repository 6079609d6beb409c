"""Whoever follows docs/write-a-rangefeed.md gets what it says: its files make a rangefeed that keeps every promise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cdc_conformance import RangefeedConformance
from cdc_testing.pages import Page

from cdc_core import Rangefeed, RangefeedContext, RangefeedRegistration

PAGE = Page("write-a-rangefeed.md")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PAGE.package(tmp_path_factory.mktemp("reader"))


def test_the_files_of_the_page_keep_every_promise(package: Path) -> None:
    done = PAGE.run(package, "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    skips = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("needs the capability" in line for line in skips), skips


def test_the_rangefeed_of_the_page_is_found(package: Path) -> None:
    done = PAGE.run(package, "cdc_core", "options", "rangefeed", "journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "How often an idle journal's clock is read." in done.stdout


def test_every_method_of_a_rangefeed_is_explained() -> None:
    public = [name for name in vars(Rangefeed) if not name.startswith("_") and callable(getattr(Rangefeed, name))]
    for name in ["__init__", *public]:
        assert f"**`{name}(" in PAGE.section("The methods"), name


def test_every_fixture_that_is_named_is_one() -> None:
    assert PAGE.no_fixtures(RangefeedConformance) == {"pytest", "id", "n", "note"}


def test_every_field_of_context_and_registration_is_explained() -> None:
    assert set(PAGE.first_cells("Registration")) == {field.name for field in dataclasses.fields(RangefeedRegistration)}
    for field in dataclasses.fields(RangefeedContext):
        assert f"`{field.name}`" in PAGE.section("The methods"), field.name
