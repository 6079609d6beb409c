"""`cdc demo`: a changefeed on a busy PostgreSQL of its own, and then an audit of what arrived."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
from cdc_sink_cloudstorage.names import ResolvedFile, parse_name

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_rangefeed_postgres.demo.movr import TABLES, Workload, load
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres

__all__ = ["demo"]

_LIMIT_S = 120.0
_FEED = """\
# The demo's changefeed. The password comes from a file, so that this one may be shown.
[changefeed.movr]
source = "postgresql://postgres:${{file:{password}}}@127.0.0.1:{port}/movr"
tables = ["public.users", "public.vehicles", "public.rides"]
sink = "file://{files}"
format = "json"

[changefeed.movr.options]
updated = true
resolved = "1s"
min_checkpoint_frequency = "1s"
"""


def demo(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit status: 0 when the audit finds the files and the database in agreement."""
    parser = argparse.ArgumentParser(prog="cdc demo", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("cdc-demo"), help="where everything goes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long people work (%(default)s)")
    parser.add_argument("--writers", type=int, default=3, help="how many work at once (%(default)s)")
    chosen = parser.parse_args(arguments)
    directory: Path = chosen.directory.absolute()
    for part in ("files", "state"):
        shutil.rmtree(directory / part, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    with EmbeddedPostgres() as server:
        return _Demo(server, directory, seconds=chosen.seconds, writers=chosen.writers).run()


class _Demo:
    def __init__(self, server: EmbeddedPostgres, directory: Path, *, seconds: float, writers: int) -> None:
        self._uri = server.uri("movr")
        self._files = directory / "files"
        self._file = directory / "demo.toml"
        self._state = directory / "state"
        self._seconds = seconds
        self._writers = writers
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE movr")
        self._file.write_text(_FEED.format(password=server.directory / "password", port=server.port, files=self._files))

    def run(self) -> int:
        rows = load(self._uri)
        _say(f"PostgreSQL is up with {rows} rows in {', '.join(TABLES)}; the changefeed is {_shown(self._file)}")
        command = [sys.executable, "-m", "cdc_core", "run", str(self._file), "--state", str(self._state)]
        feed = subprocess.Popen(command)
        try:
            _await("the changefeed's replication slot", self._has_slot, feed)
            workload = Workload(self._uri, writers=self._writers)
            workload.start()
            threading.Event().wait(self._seconds)
            workload.stop()
            _say(f"People changed {workload.changes} rows in {self._seconds:.0f} s; waiting until all is resolved")
            target = self._now()
            _await("the last changes to be resolved", lambda: self._resolved() >= target, feed)
            feed.send_signal(signal.SIGINT)
            if feed.wait(_LIMIT_S) != 0:
                _say(f"the changefeed ended with status {feed.returncode}")
                return 1
        finally:
            if feed.poll() is None:
                feed.kill()
                feed.wait()
        found = audit(self._files, self._uri, TABLES)
        newest = max(self._files.rglob("*-rides-*.ndjson"), default=self._files)
        _say(f"The files are in {_shown(self._files)}: look at one with  tail -n 3 {_shown(newest)}")
        _say("Next: put your own database into a file like demo.toml, then  cdc check FILE  and  cdc run FILE")
        _say(f"demo: {found}")
        return 0 if found.passed else 1

    def _has_slot(self) -> bool:
        with psycopg.connect(self._uri) as connection:
            return connection.execute("SELECT 1 FROM pg_replication_slots WHERE NOT temporary").fetchone() is not None

    def _now(self) -> Timestamp:
        with psycopg.connect(self._uri) as connection:
            row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
        assert row is not None
        return Timestamp(row[0] * 1000)

    def _resolved(self) -> Timestamp:
        names = (parse_name(path.name) for path in self._files.rglob("*.RESOLVED"))
        return max((name.timestamp for name in names if isinstance(name, ResolvedFile)), default=Timestamp())


def _await(what: str, condition: Callable[[], bool], feed: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    pause = threading.Event()
    while not condition():
        if feed.poll() is not None:
            raise SystemExit(f"demo: the changefeed ended with status {feed.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: {what} did not come in {_LIMIT_S:.0f} s")
        pause.wait(0.1)


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
