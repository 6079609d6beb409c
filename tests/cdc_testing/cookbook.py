"""The recipes of docs/cookbook: what their pages show, and their changefeeds, run as the pages say."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from cdc_sink_kafka.demo.servers import admin_client
from cdc_testing.documented_role import documented
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.pages import Page
from cdc_testing.runs import Lender
from cdc_testing.webhook_bodies import messages_of
from cdc_testing.webhook_server import WebhookServer
from psycopg.conninfo import conninfo_to_dict

from cdc_core import Changefeed
from cdc_core.cli.main import main
from cdc_core.spark.runner import Outcome, Runner, read_changefeed

PAGES = ("services", "warehouse", "databases", "topics", "personal-data", "rows")
SECRETS = {"INDEXER_TOKEN": "token", "MASK_KEY": "a key of 16 characters", "REGISTRY_PASSWORD": "password"}
"""The environment of all changefeeds."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_VARYING = (
    (re.compile(r"\d{19}\.\d{10}"), "TIMESTAMP"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
)
_KEYS = (re.compile(r'"key": \[.*?\]'), re.compile(r"^\S+ \[.*?\]"), re.compile(r'"id": \d+'))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A changefeed of a page: its *toml*, the SQL before its start and that between its two runs."""

    page: Page
    name: str
    toml: str
    tables: Sequence[str]
    changes: str

    @property
    def sources(self) -> int:
        return self.toml.count("postgresql://")


def page_of(name: str) -> Page:
    return Page(f"cookbook/{name}.md")


def recipes(page: Page) -> Iterator[Recipe]:
    """Yield the changefeeds of *page*. Their tables and changes are those above its first heading, and their own."""
    head, *sections = re.split(r"^## ", page.text, flags=re.MULTILINE)
    shared = [text for language, text in _BLOCK.findall(head) if language == "sql"]
    for section in (head, *sections):
        blocks = _BLOCK.findall(section)
        for place, (language, text) in enumerate(blocks):
            if language == "toml":
                (name,) = tomllib.loads(text)["changefeed"]
                before = [] if section is head else [each for kind, each in blocks[:place] if kind == "sql"]
                after = [each for kind, each in blocks[place:] if kind == "sql"]
                changes = [*after, *shared[1:], ""][0]
                yield Recipe(page=page, name=name, toml=text, tables=[*shared[:1], *before], changes=changes)


def shown(page: Page, heading: str, language: str) -> list[str]:
    """Return the blocks in *language* below a heading, or above the first one when *heading* is empty."""
    text = page.section(heading) if heading else page.text.partition("\n## ")[0]
    assert text, f"{page.name} has no heading '{heading}'"
    return [block for kind, block in _BLOCK.findall(text) if kind == language]


def functions(page: Page, *headings: str) -> dict[str, Any]:
    """Return what the blocks of Python below the *headings* define, in one module."""
    found: dict[str, Any] = {}
    for heading in headings:
        for block in shown(page, heading, "python"):
            exec(block, found)
    return found


def masked(lines: Sequence[str]) -> list[str]:
    """Return the lines without what differs in every run, sorted by key: between keys there is no order."""
    return sorted(map(_masked, lines), key=_key)


def table(page: Page, heading: str) -> list[list[str]]:
    """Return the cells of the only table below a heading, or above the first one, without its head; masked."""
    text = page.section(heading) if heading else page.text.partition("\n## ")[0]
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("|")]
    return [masked_cells(line.split("|")) for line in lines[2:]]


def masked_cells(row: Sequence[Any]) -> list[str]:
    """Return the values of a row as a page shows them; masked."""
    return [_masked("" if value is None else str(value).strip()) for value in row]


def _masked(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line


def _key(line: str) -> str:
    return next((match[0] for pattern in _KEYS if (match := pattern.search(line))), "")


class Dish:
    """A recipe with databases of its own, in which its tables are, and places of its own for what arrives.

    Its source has the documented role. Steps and marks come as soon as they can.
    """

    def __init__(
        self,
        recipe: Recipe,
        directory: Path,
        databases: Sequence[str],
        *,
        webhook: WebhookServer | None = None,
        kafka: str = "",
        registry: str = "",
        prefix: str = "",
    ) -> None:
        self.recipe = recipe
        self.directory = directory
        self.databases = databases
        self.path = WebhookServer.new_path()
        self.outcome: Outcome | None = None
        self._webhook, self._kafka, self._prefix = webhook, kafka, prefix
        self.toml = directory / f"{recipe.name}.toml"
        sources = iter(databases)
        text = re.sub(r"postgresql://[^\"]+", lambda _: documented(next(sources)), recipe.toml)
        text = text.replace("file:///data/", f"file://{self.data}/")
        if webhook is not None:
            trust = "&".join(f"{name}={quote(value, safe='')}" for name, value in webhook.trust.items())
            text = re.sub(r"webhook-https://[^\"]+", f"{webhook.uri(self.path)}?{trust}", text)
        text = re.sub(r"kafka://[^\"]+", f"kafka://{kafka}?topic_prefix={prefix}&topic_partitions=1", text)
        text = text.replace("topic_partitions = 1\n", "")
        text = re.sub(r"https://cdc:\S+@registry[^\"]+", registry, text)
        text = re.sub(r"min_checkpoint_frequency = .*\n", "", text)
        text = re.sub(r"resolved = .*", 'resolved = "0s"', text)
        options = f"[changefeed.{recipe.name}.options]\n"
        text = text if options in text else f"{text}\n{options}"
        self.toml.write_text(text.replace(options, f'{options}min_checkpoint_frequency = "0s"\n'))
        for database in databases:
            self.execute("\n".join(recipe.tables), database)

    @property
    def changefeed(self) -> Changefeed:
        return read_changefeed(self.toml, self.recipe.name)

    @property
    def data(self) -> Path:
        """What `/data` of the page is."""
        return self.directory / f"{self.recipe.name}-data"

    def execute(self, sql: str, database: str | None = None) -> None:
        """Execute statements, each in a transaction of its own."""
        with psycopg.connect(database or self.databases[0], autocommit=True) as connection:
            for statement in filter(str.strip, sql.split(";\n")):
                connection.execute(statement.encode())

    def command(self, line: str) -> tuple[int, str]:
        """Run a command of a page for this changefeed, whatever the page calls the file, and return what it prints."""
        _, verb, _, *more = shlex.split(line.removeprefix("$ "))
        with redirect_stdout(StringIO()) as said:
            status = main([verb, str(self.toml), *more, "--state", str(self.directory / "state")])
        return status, self._of_the_page(said.getvalue())

    def end(self) -> str:
        """Return how the last run ended."""
        assert self.outcome is not None
        return self.outcome.kind

    def arrived(self) -> list[str]:
        """Return what has arrived, as pages show it: a line for each row."""
        sink = tomllib.loads(self.recipe.toml)["changefeed"][self.recipe.name]["sink"]
        if sink.startswith("kafka"):
            lines = [self._line(message) for message in self.messages()]
        elif sink.startswith("webhook"):
            lines = [value.decode() for body in self.bodies() for _, _, value in messages_of(body)]
        else:
            top = self.data / sink.removeprefix("file:///data/")
            paths = [path for path in sorted(top.rglob("*")) if path.suffix in (".ndjson", ".csv")]
            lines = [line for path in paths for line in path.read_text().splitlines()]
        return [self._of_the_page(line) for line in lines]

    def _of_the_page(self, text: str) -> str:
        """Return *text* with the database that the page has."""
        return re.sub(rf"\b{conninfo_to_dict(self.databases[0])['dbname']}\b", "shop", text)

    def bodies(self) -> list[bytes]:
        """Return the bodies of requests, each once: a busy machine may be late to answer, and get one again."""
        assert self._webhook is not None
        return list(dict.fromkeys(self._webhook.bodies(self.path)))

    def messages(self) -> list[Message]:
        """Return the messages of all topics, without resolved marks."""
        with admin_client(self._kafka) as admin:
            topics = sorted(topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(self._prefix))
        return [message for message in read_topics(self._kafka, topics) if message.key is not None]

    def _line(self, message: Message) -> str:
        value = "null" if message.value is None else message.value.decode()
        return f"{message.topic.removeprefix(self._prefix)} {(message.key or b'').decode()} {value}".rstrip()


def run(lender: Lender, dishes: Sequence[Dish]) -> None:
    """Run the changefeeds with `once`, at the same time, and keep how each ended."""
    with _runner(lender, dishes) as runner:
        started = [runner.start(dish.changefeed, once=True) for dish in dishes]
        for dish, supervisor in zip(dishes, started, strict=True):
            dish.outcome = supervisor.wait()


@contextmanager
def running(lender: Lender, dish: Dish) -> Iterator[None]:
    """Run the changefeed during the block."""
    with _runner(lender, [dish]) as runner:
        runner.start(dish.changefeed)
        yield


@contextmanager
def _runner(lender: Lender, dishes: Sequence[Dish]) -> Iterator[Runner]:
    with lender.lent(), Runner(dishes[0].directory / "state", changefeeds=len(dishes)) as runner:
        yield runner


def cook(lender: Lender, dishes: Sequence[Dish]) -> None:
    """Run the changefeeds, make the changes of the pages, and run them again."""
    run(lender, dishes)
    for dish in dishes:
        assert dish.end() == "complete", (dish.recipe.name, dish.outcome)
        dish.execute(dish.recipe.changes)
    run(lender, dishes)
