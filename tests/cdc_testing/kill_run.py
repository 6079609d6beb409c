"""A changefeed into files that is killed at random, and what two readers then make of the files.

The database itself keeps the history: a trigger writes each version of each row of the table `ledger`. A second table,
`filler`, never changes and makes the initial scan last. Whoever follows the manifests must find exactly that history,
each version once; whoever reads all files by name, at least that, in order.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl

import psutil
import psycopg
from cdc_encoder_json.encoder import JsonEncoder
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.reader import CloudStorageReader
from cdc_testing.decoders import json_decoder
from cdc_testing.history import record, recorded
from cdc_testing.postgres import writing
from cdc_testing.processes import kill
from cdc_testing.runs import Feed

from cdc_core import SinkContext, Timestamp
from cdc_core.options import parse_options
from cdc_core.readback.reader import ChangeReader
from cdc_core.store.progress import ProgressStore, store_url

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
_IN_A_STEP = 0.7
"""Share of the kills that are made to break off a step."""
_STARTING_LIMIT_S = 9.0
_LIMIT_S = 600.0

Versions = dict[str, list[str | None]]


class Store(Protocol):
    """A server that holds the files."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass(slots=True)
class Report:
    """What the run was, and what both readers found."""

    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    runs: int = 0
    repeated_steps: int = 0
    versions: int = 0
    """Row versions that the database's own history has, the filler's included."""
    read: int = 0
    """Rows that the reader of manifests found."""
    files: int = 0
    marks: int = 0
    all_read: int = 0
    """Rows that the reader of all names found."""
    all_files: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}) in {self.seconds:.0f} s, {self.runs} runs, {self.repeated_steps}"
            f" steps repeated; {self.versions} versions in the database; by manifests {self.read} rows of {self.files}"
            f" files up to {self.marks} marks; by names {self.all_read} rows of {self.all_files} files;"
            f" {len(self.faults)} faults{''.join(f'; {fault}' for fault in self.faults[:5])}"
        )


class KillRun:
    """One changefeed from *source* to *sink*, and its tormentor. *seed* decides what is killed when.

    The changefeed is `cdc run` with all of its processes, or without *spark* in one process.
    """

    def __init__(
        self,
        directory: Path,
        source: str,
        sink: str,
        *,
        store: Store | None = None,
        seed: int = 1,
        spark: bool = True,
    ) -> None:
        self._source = source
        self._sink = sink
        self._store = store
        self._chance = random.Random(seed)
        self._feed = Feed(directory, source, TABLES, options=OPTIONS, sink=sink, threads=not spark)
        self._spark = spark
        self._pause_s = 0.05 if spark else 0.01  # Spark takes seconds to start, and what is written meanwhile is behind
        self._progress = ProgressStore(store_url(self._feed.state))
        self.report = Report()

    def play(self, kills: int, *, say: Callable[[str], None] = lambda _: None) -> Report:
        """Kill so many times while the ledger is written to, let the feed come to the end, and judge what is there."""
        started = time.monotonic()
        with psycopg.connect(self._source) as connection:
            _create(connection)
        with self._feed as feed, closing(self._progress):
            self._start()
            feed.until("a slot", lambda: "lsn" in (self._token() or {}))  # what is committed from now on is delivered
            with writing(self._source, self._write):
                for number, what in enumerate(self._targets(kills), 1):
                    self._kill(what)
                    self.report.kills[what] += 1
                    say(f"{number:3} {what}, {'scanning' if self._scans() else 'following the log'}")
                    if number == kills // 4:  # or a feed that is killed this often might never come to its end
                        feed.until("the end of the scan", lambda: not self._scans(), limit_s=_LIMIT_S)
                feed.until("another step", self._moves(), limit_s=_LIMIT_S)
                feed.stop()
            feed.once()
            logs = [feed.log(), *(path.read_text(errors="replace") for path in feed.state.glob("*.spark.log"))]
            self.report.repeated_steps = sum(log.count("is repeated") for log in logs)
        self._judge()
        self.report.seconds = time.monotonic() - started
        return self.report

    def _write(self, connection: psycopg.Connection[Any], n: int) -> None:
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
        threading.Event().wait(self._pause_s)

    def _start(self) -> None:
        self._feed.start()
        self.report.runs += 1

    def _moves(self) -> Callable[[], bool]:
        """Return a condition: a step is saved that is not saved now."""
        before = self._token()
        return lambda: self._token() != before

    def _scans(self) -> bool:
        return (self._token() or {}).get("scan") is not None

    def _token(self) -> Any:
        progress = self._progress.progress.load("test") if self._feed.state.exists() else None
        return None if progress is None else progress.token

    def _targets(self, kills: int) -> list[str]:
        """Return what is killed one after the other; half of it the store, where there is one."""
        ours = ["worker", "driver", "group", "worker", "jvm"] if self._spark else ["process"]
        stores = kills // 2 if self._store is not None else 0
        chosen = [ours[number % len(ours)] for number in range(kills - stores)] + ["store"] * stores
        self._chance.shuffle(chosen)
        return chosen

    def _kill(self, what: str) -> None:
        """Kill *what* at a moment that chance decides, and bring it back."""
        chance = self._chance
        if chance.random() < 0.8:
            for _ in range(chance.choice((1, 1, 2, 5))):
                self._feed.until("another step", self._moves(), limit_s=_LIMIT_S)
            threading.Event().wait(chance.random() * 0.5)
        else:  # while it starts, perhaps
            threading.Event().wait(chance.random() * (_STARTING_LIMIT_S if self._spark else 1.0))
        if what == "store":
            assert self._store is not None
            self._store.kill()
            threading.Event().wait(chance.random())
            self._store.start()
        else:
            self._kill_feed(what)

    def _kill_feed(self, what: str) -> None:
        feed = self._feed
        if not self._spark:
            if self._chance.random() < _IN_A_STEP:
                feed.until("a step", lambda: feed.freeze(self._has_begun_a_step))
            feed.kill_driver()
            self._start()
        elif what == "worker":
            feed.until("a worker to kill", feed.kill_a_worker)
        elif what == "jvm":
            feed.until("it runs", lambda: _runs(feed.log()))  # while it is set up, what is unknown ends it
            with self._in_a_step(feed):
                feed.kill_jvm()
        else:
            with self._in_a_step(feed):
                if what == "group":
                    for process in feed.tree():
                        kill(process)
                else:
                    kill(feed.tree()[0])
            feed.kill_driver()
            self._start()

    @contextmanager
    def _in_a_step(self, feed: Feed) -> Iterator[None]:
        """Most often stop a worker in the middle of a slice for the block, so that the kill in it breaks off a step."""
        stopped: list[psutil.Process] = []

        def stop() -> bool:
            stopped.extend(filter(None, [feed.stop_a_worker()]))
            return bool(stopped)

        if self._chance.random() < _IN_A_STEP:
            feed.until("a slice", stop)
        yield
        for worker in stopped:
            with suppress(psutil.NoSuchProcess):
                worker.resume()

    def _has_begun_a_step(self) -> bool:
        """Whether a step of the log is planned that is not saved."""
        plan = self._progress.steps.load_plan("test")
        return plan is not None and plan.get("start") == self._token()

    def _judge(self) -> None:
        with psycopg.connect(self._source) as connection:
            history: Versions = recorded(connection)
        self.report.versions = sum(map(len, history.values())) + FILLER
        self._judge_manifests(history)
        self._judge_names(history)

    def _judge_manifests(self, history: Versions) -> None:
        """Every version of the history exactly once, in order, and each filler row once."""
        found: Versions = defaultdict(list)
        updated: dict[str, Timestamp] = {}
        filler: Counter[int] = Counter()
        faults = self.report.faults
        with ChangeReader(self._sink) as reader:
            marks = reader.marks()
            self.report.marks = len(marks)
            self.report.files = sum(1 for _ in reader.files())
            middle = marks[len(marks) // 2]
            parts = [reader.read(upto=middle), reader.read(after=middle)]
            for rows in (rows for part in parts for rows in part):
                self.report.read += len(rows)
                if rows.schema.name.table == "filler":
                    filler.update(rows.column("key").field("id").to_pylist())
                    continue
                columns = (rows.column(name).to_pylist() for name in ("key", "after", "updated"))
                for key, after, at in zip(*columns, strict=True):
                    name = f"[{key['id']}]"
                    moment = Timestamp(**at)
                    if moment <= updated.get(name, Timestamp()):
                        faults.append(f"by manifests: key {name} at {moment} after {updated[name]}")
                    updated[name] = moment
                    found[name].append(_text(after))
        if filler != Counter(range(1, FILLER + 1)):
            faults.append(f"by manifests: {len(filler)} filler rows, {filler.total() - len(filler)} of them again")
        for name in history.keys() | found.keys():
            if found.get(name) != history.get(name):
                faults.append(
                    f"by manifests: key {name} has {len(found.get(name, ()))} versions, not the"
                    f" {len(history.get(name, ()))} of the database"
                )

    def _judge_names(self, history: Versions) -> None:
        """Every version at least once, those of a key in order, none below an earlier mark unless it came before."""
        seen: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        known: set[tuple[str, str]] = set()
        filler: set[int] = set()
        mark = Timestamp()
        faults = self.report.faults
        for message in _messages(self._sink):
            assert message.value is not None
            if message.topic is None:
                mark = max(mark, Timestamp.parse(json.loads(message.value)["resolved"]))
                continue
            self.report.all_files += 1
            for line in message.value.splitlines():
                self.report.all_read += 1
                row = json.loads(line)
                if message.topic == "filler":
                    filler.add(row["key"][0])
                    continue
                name = json.dumps(row["key"])
                if (name, row["updated"]) in known:
                    continue
                known.add((name, row["updated"]))
                if Timestamp.parse(row["updated"]) <= mark:
                    faults.append(f"by names: key {name} at {row['updated']} first comes after the mark {mark}")
                seen[name].append((row["updated"], _text(row["after"])))
        if filler != set(range(1, FILLER + 1)):
            faults.append(f"by names: {len(filler)} of {FILLER} filler rows")
        for name in history.keys() | seen.keys():
            if [text for _, text in seen.get(name, ())] != history.get(name):
                faults.append(f"by names: the versions of key {name} are not those of the database, in their order")


def _runs(log: str) -> bool:
    return log.rfind(": running") > log.rfind(": starting Spark")


def _create(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE filler (id bigint PRIMARY KEY, note text)")
    connection.execute("INSERT INTO filler SELECT n, repeat('f', 100) FROM generate_series(1, %s) n", [FILLER])
    connection.execute("CREATE TABLE ledger (id bigint PRIMARY KEY, n bigint NOT NULL, note text NOT NULL)")
    record(connection, "ledger")


def _text(after: Mapping[str, Any] | None) -> str | None:
    """Return a row of the ledger as the database's history has it."""
    return None if after is None else f"({after['id']},{after['n']},{after['note']})"


def _messages(sink: str) -> Sequence[Any]:
    place, _, query = sink.partition("?")
    parameters = {name.lower(): value for name, value in parse_qsl(query)}
    decoder = json_decoder(output="files")
    context = SinkContext(
        changefeed="test",
        epoch=1,
        uri=place,
        options=parse_options(CloudStorageOptions, parameters, owner="sink"),
        encoder=JsonEncoder(decoder.context),
    )
    with closing(CloudStorageReader(context)) as reader:
        return list(reader.read())
