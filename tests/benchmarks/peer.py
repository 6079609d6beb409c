"""Peers beside us: virtual environments of their own, and runs of Debezium's engine in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from benchmarks.workload import connect

_PACKAGE = "pydbzengine==3.6.3.0"
_ENGINE = Path(__file__).with_name("debezium_engine.py")


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """What one run of the engine took.

    `rate` counts from the first batch to the last, without the first batch: no start counts. `first_s` and `last_s`
    count from the engine's start, `launch_s` after that of its process, when its JVM was up if it has one.
    """

    launch_s: float
    events: int
    first_batch: int
    first_s: float
    last_s: float
    sample: str
    peak_rss: int

    @property
    def rate(self) -> float:
        return (self.events - self.first_batch) / max(self.last_s - self.first_s, 1e-9)

    @property
    def rate_of_engine(self) -> float:
        """Events per second from the engine's start to the last batch."""
        return self.events / self.last_s

    @property
    def rate_with_start(self) -> float:
        """Events per second from the start of the process to the last batch."""
        return self.events / (self.launch_s + self.last_s)

    def details(self) -> dict[str, Any]:
        return {**asdict(self), "rate_of_engine": self.rate_of_engine, "rate_with_start": self.rate_with_start}


class Peer:
    """Reads the table *table* of *uri* by a slot and a publication of its own; the slot goes with its database."""

    def __init__(self, directory: Path, uri: str, *, table: str) -> None:
        self.directory, self.uri, self.table = directory, uri, table
        self.name = f"bench_{uuid.uuid4().hex[:8]}"
        self.work = directory / self.name

    def __enter__(self) -> Self:
        self.work.mkdir(parents=True)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            shutil.rmtree(self.work)


class SlotPeer(Peer):
    """A peer that needs its slot and its publication beforehand, and reads what changes from then on."""

    plugin = "pgoutput"

    def __enter__(self) -> Self:
        super().__enter__()
        with connect(self.uri) as connection:
            connection.execute(f"CREATE PUBLICATION {self.name} FOR TABLE {self.table}".encode())
            connection.execute("SELECT pg_create_logical_replication_slot(%s, %s)", (self.name, self.plugin))
        return self


class Debezium(Peer):
    """One connector, with an offset file of its own."""

    def run(self, *, expect: int, timeout_s: float = 600.0) -> PeerRun:
        """Let the engine go on where it ended (the first time: a snapshot) until it has seen *expect* events."""
        task = {"properties": self._properties(), "expect": expect, "timeout_s": timeout_s}
        return peer_run(self.directory, self.work, package=_PACKAGE, program=_ENGINE, task=task)

    def _properties(self) -> dict[str, Any]:
        return {
            **connector_properties(self.uri, name=self.name, table=self.table),
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.work / "offsets.dat"),
            "offset.flush.interval.ms": 1000,
            "converter.schemas.enable": "false",
        }


def connector_properties(uri: str, *, name: str, table: str) -> dict[str, Any]:
    """Return the configuration of Debezium's connector, wherever it runs; slot and publication are called *name*."""
    parts = urlsplit(uri)
    return {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": parts.hostname,
        "database.port": parts.port,
        "database.user": unquote(parts.username or ""),
        "database.password": unquote(parts.password or ""),
        "database.dbname": parts.path.lstrip("/"),
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": table,
        "topic.prefix": name,
        "snapshot.mode": "initial",
        "max.batch.size": 8192,
        "max.queue.size": 32768,
    }


def peer_run(directory: Path, work: Path, *, package: str, program: Path, task: Mapping[str, Any]) -> PeerRun:
    """Return what *program* wrote to the file `result` of its task, the JSON object that is its argument.

    It runs in *work*, with the interpreter of an environment in *directory* that has *package* and nothing of ours.
    """
    python = environment(directory, package)
    result = work / "result.json"
    launched = time.time()
    done = subprocess.run(
        [str(python), "-P", str(program), json.dumps({**task, "result": str(result)})],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{package} failed, see {work}: {done.stderr[-500:]}")
    found = json.loads(result.read_text())
    return PeerRun(launch_s=found.pop("started_at") - launched, **found)


def environment(directory: Path, package: str) -> Path:
    """Return the interpreter of the virtual environment of *package*, which is made when it is missing."""
    environment = directory / f"{package.partition('==')[0]}-venv"
    python = environment / "bin" / "python"
    complete = environment / package
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
            check=True,
            env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"},
        )
        complete.touch()
    return python
