"""The documentation is true: its changefeeds resolve, its commands exist, its links lead somewhere."""

from __future__ import annotations

import ast
import json
import logging
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from cdc_encoder_avro.options import AvroOptions
from cdc_encoder_avro.schemas import envelope_schema
from cdc_encoder_avro.types import branches
from cdc_rangefeed_postgres.builtin_types import BUILTIN
from cdc_rangefeed_postgres.types import PgColumn, TypeCatalog, TypeInfo, column_type
from cdc_sink_kafka.demo.servers import Certificates
from cdc_sink_kafka.headers import Headers
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_template import plugin as template
from confluent_kafka import Producer

import cdc_core
from cdc_core import Column, ColumnType, Envelope, Kind, SinkRegistration, TableName, TableSchema, errors, hookimpl
from cdc_core.cli.main import cdc
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.interpolation import interpolate, with_absolute_files
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.entry_points import PLUGINS, Published, published
from cdc_core.plugins.host import PluginHost

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md")]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *PAGES, *ROOT.glob("*/*/README.md")])
QUIET = logging.getLogger(f"{__name__}.quiet")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
OF_AN_EXAMPLE: dict[str, Any] = {"source": "postgresql://u@h/d", "tables": ["t"], "sink": "file:///data/out"}


def blocks(language: str) -> list[Any]:
    """Return every fenced block in *language* as a test parameter, named after its document."""
    found = []
    for document in DOCUMENTS:
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)):
            found.append(pytest.param(text, id=f"{document.relative_to(ROOT)}-{number}"))
    return found


class Demo:
    """The plugin of docs/write-a-sink.md. The options that the page gives it are tested with the page."""

    @hookimpl
    def cdc_register_sinks(self) -> Iterator[SinkRegistration]:
        for registration in template.cdc_register_sinks():
            options = "cdc_testing.components:SinkOptions"
            yield replace(registration, name="demo", schemes=("demo",), options=options)


class AnySecret(Mapping[str, str]):
    """An environment that has every variable. The value is also valid base64, but for the URI of a source."""

    def __getitem__(self, name: str) -> str:
        return OF_AN_EXAMPLE["source"] if name == "DATABASE_URL" else "c2VjcmV0c2VjcmV0"

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.fixture(scope="session")
def mentioned_files(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """A directory with the files that examples mention."""
    directory = tmp_path_factory.mktemp("mentioned")
    for name, content in (("ca.pem", "ca"), ("client.pem", "client_cert"), ("client.key", "client_key")):
        shutil.copy(getattr(certificates, content), directory / name)
    return directory


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_changefeed_in_the_documents_resolves(text: str, mentioned_files: Path) -> None:
    installed = [plugin for plugins in published(PLUGINS).values() for plugin in plugins]
    host = PluginHost([*installed, Published.of(template, name="template"), Published.of(Demo(), name="demo")])
    for name, fields in tomllib.loads(text).get("changefeed", {}).items():
        example = {**OF_AN_EXAMPLE, **fields}
        if "query" in fields:
            del example["tables"]
        shown = interpolate(with_absolute_files(example, mentioned_files), place="example", environ=AnySecret())
        feed = resolve(Changefeed(name=name, **shown), host)
        assert feed.rangefeed.parsed() is not None
        Parts(feed).open_sink().close()
        if feed.sink.name == "kafka":
            assert_librdkafka_accepts(feed)


def assert_librdkafka_accepts(feed: ResolvedChangefeed) -> None:
    """Assert, without a broker, that the options fit together and that librdkafka knows the properties."""
    options = feed.sink.parsed()
    Headers(options)
    properties = {
        **client_properties(feed.destination, options, changefeed=feed.name),
        **producer_properties(options),
        "bootstrap.servers": "",
    }
    Producer(properties, logger=QUIET)


@pytest.mark.parametrize("text", blocks("console"))
def test_every_command_in_the_documents_exists(text: str) -> None:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words[:2] == ["$", "cdc"]:
            command: click.Command | None = cdc
            for word in words[2:]:
                if isinstance(command, click.Group):
                    command = command.get_command(click.Context(command), word)
            assert command is not None, line
            known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            given = {word.strip("[]") for word in words[3:] if word.lstrip("[").startswith("--")}
            assert given <= known or "ignore_unknown_options" in command.context_settings, line
        elif words[:2] == ["$", "make"]:
            assert re.search(rf"^{words[2]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line


@pytest.mark.parametrize("text", blocks("json"))
def test_every_message_in_the_documents_is_json(text: str) -> None:
    decoder = json.JSONDecoder()
    while text:
        message, end = decoder.raw_decode(text)
        assert message
        text = text[end:].lstrip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = re.findall(r"`([a-z_/]+/test_\w+\.py)`", (ROOT / "docs" / "guarantees.md").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_heading_finds_it(document: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", document.read_text()):
        target = (document.parent / path) if path else document
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, anchor


@pytest.mark.parametrize("text", blocks("python"))
def test_every_piece_of_python_in_the_documents_is_python(text: str) -> None:
    ast.parse(text)


GENERATED = {"options.md", "promises-sinks.md", "promises-encoders.md", "promises-rangefeeds.md", "rest.md", "sql.md"}
"""References that are long because what they list is."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_is_longer_than_fifteen_screens(page: Path) -> None:
    text = re.sub(r"```\{toctree\}.*?```|<!--.*?-->|\]\([^)]*\)", " ", page.read_text(), flags=re.DOTALL)
    words = [word for word in re.split(r"[\s|]+", text) if re.search(r"\w", word)]
    assert len(words) <= 15 * 170 or page.name in GENERATED, "divide the page by task"


def test_every_page_is_linked() -> None:
    linked = {
        (document.parent / target).resolve()
        for document in DOCUMENTS
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text())
    }
    pages = {path.resolve() for path in (*PAGES, *ROOT.glob("docs/examples/*.*")) if path.parent.name != "api"}
    assert pages <= linked


def test_the_api_reference_has_every_exported_name_once() -> None:
    texts = [page.read_text() for page in ROOT.glob("docs/api/*.md")]
    found = [name for text in texts for name in re.findall(r"^\.\. \S+:: cdc_core\.(\w+)$", text, re.MULTILINE)]
    assert sorted(found) == sorted(cdc_core.__all__), "give each name its place in a page of docs/api"


NAMES = {
    "char": "character",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "varchar": "character varying",
}


def pg_types(cell: str) -> Iterator[ColumnType]:
    """Yield the built-in types of PostgreSQL that a cell names."""
    oids = {name: oid for oid, (name, _, _) in BUILTIN.items()}
    if cell == "numeric(p,s)":
        yield column_type(PgColumn("c", oids["numeric"], (10 << 16 | 2) + 4), TypeCatalog())
    if cell == "enums":
        mood = TypeInfo(oid=90_001, name="mood", typtype="e", labels=("sad", "ok"))
        yield column_type(PgColumn("c", mood.oid), TypeCatalog({mood.oid: mood}))
    for name in cell.split(", "):
        if NAMES.get(name, name) in oids:
            yield column_type(PgColumn("c", oids[NAMES.get(name, name)]), TypeCatalog())


def test_the_table_of_postgresql_types_shows_their_avro_types() -> None:
    page = (ROOT / "docs" / "postgres-tables.md").read_text()
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+?) \|$", page.partition("| Avro, besides null |")[2], re.MULTILINE)
    checked = 0
    for cell, avro in rows[1:]:
        for type_ in pg_types(cell):
            checked += 1
            found = branches(type_, AvroOptions(), enum_name="mood_enum")
            texts = [
                f"`{branch}`"
                if isinstance(branch, str)
                else f"`{branch['type']}`, logical type `{branch['logicalType']}`"
                for branch in found
            ]
            assert avro == "; or ".join(texts), cell
    assert checked > 25


def test_the_avro_page_shows_the_schema_that_is_registered() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "avro.md").read_text(), re.DOTALL)
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64)),
        Column(name="total", type=ColumnType(kind=Kind.DECIMAL, source="numeric(10,2)", precision=10, scale=2)),
    )
    orders = TableSchema(
        name=TableName(database="shop", schema="public", table="orders"),
        version=1,
        columns=columns,
        primary_key=("id",),
    )
    schema = envelope_schema(
        orders,
        "orders",
        envelope=Envelope(updated=True),
        options=AvroOptions(avro_schema_prefix="shop."),
        resolved=True,
    )
    assert json.loads(text) == schema


def test_every_command_and_option_is_explained() -> None:
    commands = list(cdc.commands.values())
    for command in commands:
        if isinstance(command, click.Group):
            commands.extend(command.commands.values())
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (command.name, parameter.name)


def test_every_error_is_on_the_page_of_errors() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.CdcError)]
    for name in ["START_OVER", *(each.__name__ for each in classes)]:
        assert f"`{name}`" in page, name
