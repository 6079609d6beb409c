"""Whoever follows docs/write-an-encoder.md gets what it says, and `cdc new-plugin` makes what it shows."""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from pathlib import Path

from cdc_conformance import EncoderConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import Encoder, EncoderRegistration, FileBody, Kind
from cdc_core.config.changefeed import ChangefeedOptions
from cdc_core.options import describe

PAGE = Page("write-an-encoder.md")


def bare(text: str) -> str:
    """Return Python without its docstrings and comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def test_the_files_of_the_page_are_those_that_the_command_makes(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    files = PAGE.files()
    assert {Path(path).name for path in files} == {
        *(path.name for path in (made / "src" / "cdc_encoder_form").glob("[!_]*.py")),
        "test_conformance.py",
    }
    for path, text in files.items():
        assert bare(text) == bare((made / path).read_text()), path


def test_the_entry_point_of_the_page_is_the_one_that_is_made(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    (shown,) = (project for text in PAGE.blocks("toml") if (project := tomllib.loads(text).get("project")))
    assert shown["entry-points"] == declared["entry-points"]


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


def test_every_fixture_that_is_named_is_one() -> None:
    assert PAGE.no_fixtures(EncoderConformance) == {"pytest"}


def test_every_envelope_that_is_explained_is_one() -> None:
    (envelope,) = (row for row in describe(ChangefeedOptions) if row.name == "envelope")
    for name in PAGE.first_cells("Envelopes"):
        assert name in envelope.type, name
