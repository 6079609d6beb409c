"""Whoever follows docs/write-an-encoder.md gets what it says: its files make an encoder that keeps every promise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cdc_testing.pages import Page

from cdc_core import Encoder, EncoderRegistration, FileBody, Kind
from cdc_core.changefeed import ChangefeedOptions
from cdc_core.options import describe

PAGE = Page("write-an-encoder.md")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PAGE.package(tmp_path_factory.mktemp("reader"))


def test_the_files_of_the_page_keep_every_promise(package: Path) -> None:
    done = PAGE.run(package, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_the_encoder_of_the_page_is_found(package: Path) -> None:
    done = PAGE.run(package, "cdc_core", "options", "encoder", "form")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What stands between two fields." in done.stdout


def test_every_method_of_an_encoder_is_explained() -> None:
    public = [name for name in vars(Encoder) if not name.startswith("_") and callable(getattr(Encoder, name))]
    for name in ["__init__", *public]:
        assert f"**`{name}(" in PAGE.section("The methods"), name
    for name in FileBody.__abstractmethods__:
        assert f"`{name}(" in PAGE.section("The methods"), name


def test_every_field_of_a_registration_is_explained() -> None:
    fields = {field.name for field in dataclasses.fields(EncoderRegistration)}
    assert set(PAGE.first_cells("Registration")) == fields


def test_every_kind_of_column_is_explained() -> None:
    assert sorted(name for name in PAGE.first_cells("Rows")[1:]) == sorted(kind.name for kind in Kind)


def test_every_envelope_that_is_explained_is_one() -> None:
    (envelope,) = (row for row in describe(ChangefeedOptions) if row.name == "envelope")
    for name in PAGE.first_cells("Envelopes"):
        assert name in envelope.type, name
