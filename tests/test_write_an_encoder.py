"""docs/write-an-encoder.md is complete, and `cdc new-plugin` creates the files that it shows."""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from pathlib import Path

import pytest
from cdc_conformance import EncoderConformance
from cdc_conformance.new_plugin import Names, create
from cdc_testing.pages import Page

from cdc_core import Encoder, EncoderContext, EncoderRegistration, Envelope, FileBody, Kind
from cdc_core.envelope import ENVELOPES

PAGE = Page("write-an-encoder.md")


def bare(text: str) -> str:
    """Return Python without its docstrings and comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def test_the_files_of_the_page_are_those_that_the_command_creates(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    files = PAGE.files()
    assert {Path(path).name for path in files} == {
        *(path.name for path in (made / "src" / "cdc_encoder_form").glob("[!_]*.py")),
        "test_conformance.py",
    }
    for path, text in files.items():
        assert bare(text) == bare((made / path).read_text()), path


def test_the_entry_point_of_the_page_is_the_created_one(tmp_path: Path) -> None:
    made = create(Names.of("encoder", "form"), tmp_path / "form")
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    (shown,) = (project for text in PAGE.blocks("toml") if (project := tomllib.loads(text).get("project")))
    assert shown["entry-points"] == declared["entry-points"]


def public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


@pytest.mark.parametrize("cls", [Encoder, FileBody], ids=lambda cls: cls.__name__)
def test_every_member_of_a_class_is_explained(cls: type) -> None:
    section = PAGE.section(cls.__name__)
    for name in public(cls):
        assert f"**`{name}(" in section or f"**`{name}`" in section, name


def test_every_question_to_an_envelope_is_explained() -> None:
    names = {name.partition("(")[0] for name in PAGE.first_cells("Envelopes")}
    own = {*public(Envelope), *ENVELOPES} - {field.name for field in dataclasses.fields(Envelope)}
    assert own - names == {"to_json", "from_json"}


def test_every_field_of_a_context_is_explained() -> None:
    fields = {field.name for field in dataclasses.fields(EncoderContext)}
    assert fields <= set(PAGE.first_cells("How the engine uses an encoder"))


def test_every_field_of_a_registration_is_explained() -> None:
    fields = {field.name for field in dataclasses.fields(EncoderRegistration)}
    assert set(PAGE.first_cells("Registration")) == fields


def test_every_kind_of_column_is_explained() -> None:
    assert sorted(name for name in PAGE.first_cells("Rows")[1:]) == sorted(kind.name for kind in Kind)


def test_every_named_fixture_exists() -> None:
    assert PAGE.no_fixtures(EncoderConformance) == set()
