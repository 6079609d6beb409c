"""A changefeed with rows that are refused on demand, and its dead letters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cdc_testing.engine import Journal, counter_feed
from cdc_testing.local_engine import LocalEngine, installed_plugins
from cdc_testing.scripted import TABLE, Script

from cdc_core import Changefeed, Timestamp
from cdc_core.config.changefeed import dead_letter_changefeed, dead_letter_table
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.replay import DeadLetterReader, Replay
from cdc_core.engine.replay import replay
from cdc_core.store.progress import ProgressStore, store_url

TABLE_NAME = TABLE.name.full


TOTAL = 400


HOW = ["encode", "name", "refuse"]


class Rig:
    """A counting changefeed of 400 rows in 4 steps, with its dead letters in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = Script(directory)
        self.places = directory / "dead"
        self.store = ProgressStore(store_url(directory))

    def refuse(self, *rows: int, how: str = "encode") -> None:
        self.script.order("bad-rows", json.dumps({"how": how, "rows": rows}))

    def correct(self) -> None:
        (self.directory / "bad-rows").unlink()

    def feed(self, *, dead_letter: str | None = None, **options: Any) -> ResolvedChangefeed:
        uri = dead_letter or f"file://{self.places}"
        feed = counter_feed(
            self.directory,
            options={"on_error": "dead_letter", "dead_letter": uri, **options},
            total=TOTAL,
            rows_per_step=100,
            batch_rows=20,
            keys=10,
        )
        bare = Changefeed(name="t", source="postgresql://u@h/d", tables=("counter",), sink="file:///nowhere")
        letters = resolve(dead_letter_changefeed(bare, uri), installed_plugins())
        return dataclasses.replace(
            feed, dead_letter=dataclasses.replace(letters, table_names=(dead_letter_table("t"),))
        )

    def start(self, **options: Any) -> LocalEngine:
        engine = LocalEngine(self.feed(**options), self.directory)
        engine.run()
        return engine

    def complete(self, **options: Any) -> LocalEngine:
        engine = self.start(**options)
        engine.until(Timestamp(TOTAL))
        return engine

    def replay(self, **options: Any) -> tuple[Replay, int]:
        feed = self.feed(**options)
        find = DeadLetterReader(feed).find
        return replay(feed, store=self.store, state_dir=self.directory, find=find)

    def letters(self) -> list[dict[str, Any]]:
        lines = [line for path in sorted(self.places.rglob("*.ndjson")) for line in path.read_text().splitlines()]
        return [json.loads(line)["after"] for line in lines]

    def waiting(self) -> list[tuple[int, str]]:
        return sorted((letter.updated.wall, letter.stage) for letter in self.store.dead_letters.of("t"))

    def delivered(self) -> list[int]:
        return [n for event in Journal(self.directory).of("rows") for _, n in event[4]]

    def faults(self) -> list[str]:
        return Journal(self.directory).faults(total=TOTAL)
