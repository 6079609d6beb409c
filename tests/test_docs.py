"""What the documents show is true: every changefeed resolves, every command exists, every link leads somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from cdc_core import errors
from cdc_core.changefeed import Changefeed
from cdc_core.cli import cdc
from cdc_core.plugin_host import PluginHost
from cdc_core.resolve import resolve

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("*/*/README.md")])
OF_AN_EXAMPLE = {"source": "postgresql://u@h/d", "tables": ["t"], "sink": "file:///data/out"}


def blocks(language: str) -> list[Any]:
    """Return every fenced block in *language*, as a test parameter named after its document."""
    found = []
    for document in DOCUMENTS:
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)):
            found.append(pytest.param(text, id=f"{document.relative_to(ROOT)}-{number}"))
    return found


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_changefeed_in_the_documents_resolves(text: str) -> None:
    host = PluginHost.load()
    for name, fields in tomllib.loads(text).get("changefeed", {}).items():
        shown = {**OF_AN_EXAMPLE, **fields}
        for key in ("source", "sink"):
            shown[key] = re.sub(r"\$\{.*?\}", "secret", shown[key])
        job = resolve(Changefeed(name=name, **shown), host)
        assert job.sink.parsed() is not None
        assert job.rangefeed.parsed() is not None


@pytest.mark.parametrize("text", blocks("console"))
def test_every_command_in_the_documents_exists(text: str) -> None:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words[:2] == ["$", "cdc"]:
            command = cdc.commands[words[2]]
            known = {name for parameter in command.params for name in parameter.opts}
            given = {word.strip("[]") for word in words[3:] if word.lstrip("[").startswith("--")}
            assert given <= known, line
        elif words[:2] == ["$", "make"]:
            assert re.search(rf"^{words[2]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line


@pytest.mark.parametrize("text", blocks("json"))
def test_every_message_in_the_documents_is_json(text: str) -> None:
    for line in text.splitlines():
        assert json.loads(line)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_every_command_and_option_is_explained() -> None:
    for command in cdc.commands.values():
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (command.name, parameter.name)


def test_every_error_is_in_the_page_of_errors() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    for name in errors.__all__:
        assert name in ("from_wire", "to_wire") or f"`{name}`" in page, name
