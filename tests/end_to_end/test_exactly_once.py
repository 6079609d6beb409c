"""kill -9 of the changefeed and of its store: readers of manifests get every row once, readers of names at least once.

The database itself keeps the history: a trigger writes each version of each row of the table `ledger`. A second table,
`filler`, never changes and makes the initial scan last. Whoever follows the manifests must find exactly that history,
each version once; whoever reads all files by name, at least that, in order.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import psycopg
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.reader import CloudStorageReader
from cdc_testing.decoders import json_decoder
from cdc_testing.history import record, recorded
from cdc_testing.object_stores import SeaweedFS
from cdc_testing.postgres import writing
from cdc_testing.runs import Feed

from cdc_core import SinkContext, Timestamp
from cdc_core.options import parse_options
from cdc_core.readback.reader import ChangeReader
from cdc_core.store.progress import ProgressStore, store_url

pytestmark = pytest.mark.slow

TABLES = ("public.filler", "public.ledger")
FILLER = 1_000
KEYS = 300
OPTIONS: Mapping[str, object] = {
    "file_size": "16KB",
    "max_step_bytes": "1MB",
    "fetch_size": "64KB",
    "scan_chunk_size": "128KB",
    "scan_round": "2s",
    "retry_backoff": "100ms",
    "max_retry_backoff": "1s",
}
Versions = dict[str, list[str | None]]


class KillRun:
    """One changefeed from *source* into *store* in one process, and its tormentor."""

    def __init__(self, directory: Path, source: str, store: SeaweedFS, *, seed: int) -> None:
        self._source, self._store = source, store
        self._chance = random.Random(seed)
        self._feed = Feed(directory, source, TABLES, options=OPTIONS, sink=store.uri("kills"), threads=True)
        self._progress = ProgressStore(store_url(self._feed.state))

    def play(self) -> str:
        """Kill both in the scan and behind it while the ledger is written to, and let the feed come to the end.

        Return its log.
        """
        with psycopg.connect(self._source) as connection:
            connection.execute("CREATE TABLE filler (id bigint PRIMARY KEY, note text)")
            connection.execute("INSERT INTO filler SELECT n, repeat('f', 100) FROM generate_series(1, %s) n", [FILLER])
            connection.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, n bigint NOT NULL, note text NOT NULL)")
            record(connection, "ledger")
        with self._feed as feed, closing(self._progress):
            feed.start()
            feed.until("a slot", lambda: "lsn" in (self._token() or {}))  # what is committed from now on is delivered
            with writing(self._source, _write):
                self._kill_both()
                feed.until("the end of the scan", lambda: (self._token() or {}).get("scan") is None)
                self._kill_both()
                self._await_step()
                feed.stop()
            feed.once()
            return feed.log()

    def _kill_both(self) -> None:
        for kill in self._chance.sample([self._kill_feed, self._kill_store], 2):
            for _ in range(self._chance.choice((1, 1, 2, 5))):
                self._await_step()
            threading.Event().wait(self._chance.random() * 0.5)
            kill()

    def _kill_feed(self) -> None:
        """Kill it in the middle of a step."""
        self._feed.until("a step", lambda: self._feed.freeze(self._has_begun_a_step))
        self._feed.kill_driver()
        self._feed.start()

    def _kill_store(self) -> None:
        self._store.kill()
        threading.Event().wait(self._chance.random())
        self._store.start()

    def _await_step(self) -> None:
        before = self._token()
        self._feed.until("another step", lambda: self._token() != before)

    def _token(self) -> Any:
        progress = self._progress.progress.load("test") if self._feed.state.exists() else None
        return None if progress is None else progress.token

    def _has_begun_a_step(self) -> bool:
        """Whether a step of the log is planned that is not saved."""
        plan = self._progress.planned_steps.load_plan("test")
        return plan is not None and plan.get("start") == self._token()


def _write(connection: psycopg.Connection[Any], n: int) -> None:
    """One transaction of some changes; the versions of a key rise with *n*."""
    chance = random.Random(n)
    with connection.transaction():
        for key in sorted(chance.sample(range(1, KEYS + 1), chance.choice((1, 1, 2, 5, 20)))):
            if chance.random() < 0.15:
                connection.execute("DELETE FROM ledger WHERE id = %s", [key])
            else:
                connection.execute(
                    "INSERT INTO ledger VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n,"
                    " note = EXCLUDED.note",
                    [key, n, "x" * chance.choice((5, 50, 500))],
                )
    threading.Event().wait(0.01)


def by_manifests(sink: str) -> tuple[Versions, list[int]]:
    """Return the versions by key and the ids of the filler, which are read in two parts. Each key must be in order."""
    found: Versions = defaultdict(list)
    updated: dict[str, Timestamp] = {}
    filler: list[int] = []
    with ChangeReader(sink) as reader:
        marks = reader.marks()
        middle = marks[len(marks) // 2]
        for rows in (rows for part in ({"upto": middle}, {"after": middle}) for rows in reader.read(**part)):
            if rows.schema.name.table == "filler":
                filler += rows.column("key").field("id").to_pylist()
                continue
            columns = (rows.column(name).to_pylist() for name in ("key", "after", "updated"))
            for key, after, at in zip(*columns, strict=True):
                name, moment = f"[{key['id']}]", Timestamp(**at)
                assert moment > updated.get(name, Timestamp()), f"key {name} at {moment} after {updated[name]}"
                updated[name] = moment
                found[name].append(_text(after))
    return found, filler


def by_names(sink: str) -> tuple[Versions, set[int]]:
    """Return the versions by key, each once, and the ids of the filler. No version may first come after its mark."""
    found: Versions = defaultdict(list)
    known: set[tuple[str, str]] = set()
    filler: set[int] = set()
    mark = Timestamp()
    for topic, value in _files(sink):
        if topic is None:
            mark = max(mark, Timestamp.parse(json.loads(value)["resolved"]))
            continue
        for row in map(json.loads, value.splitlines()):
            if topic == "filler":
                filler.add(row["key"][0])
            elif (identity := (json.dumps(row["key"]), row["updated"])) not in known:
                known.add(identity)
                assert Timestamp.parse(row["updated"]) > mark, f"{identity} first comes after the mark {mark}"
                found[identity[0]].append(_text(row["after"]))
    return found, filler


def _text(after: Mapping[str, Any] | None) -> str | None:
    """Return a row of the ledger as the database's history has it."""
    return None if after is None else f"({after['id']},{after['n']},{after['note']})"


def _files(sink: str) -> Iterator[tuple[str | None, bytes]]:
    place, _, query = sink.partition("?")
    parameters = {name.lower(): value for name, value in parse_qsl(query)}
    options = parse_options(CloudStorageOptions, parameters, owner="sink")
    encoder = JsonEncoder(json_decoder(output="files").context)
    context = SinkContext(changefeed="test", epoch=1, uri=place, options=options, encoder=encoder)
    with closing(CloudStorageReader(context)) as reader:
        for message in reader.read():
            assert message.value is not None
            yield message.topic, message.value


def test_files_in_a_store_that_is_killed(database: str, workers_find_the_tests: None, tmp_path: Path) -> None:
    with SeaweedFS() as store:
        log = KillRun(tmp_path, database, store, seed=1).play()
        with psycopg.connect(database) as connection:
            history = recorded(connection)
        found, filler = by_manifests(store.uri("kills"))
        assert found == history
        assert Counter(filler) == Counter(range(1, FILLER + 1))
        found, at_least_once = by_names(store.uri("kills"))
        assert found == history
        assert at_least_once == set(range(1, FILLER + 1))
    assert sum(map(len, history.values())) > 100
    assert "repeating step" in log
