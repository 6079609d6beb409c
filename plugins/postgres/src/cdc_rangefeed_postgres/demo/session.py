"""The session of every demo: writers change a database while `cdc run` follows it, until all changes are resolved."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.movr import TABLES, Workload, load
from cdc_rangefeed_postgres.demo.saying import say
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres, free_port

_LIMIT_S = 180.0
_POLL_INTERVAL_S = 0.2
_SOURCE = """\
source = "postgresql://postgres:${{file:{password}}}@127.0.0.1:{port}/movr"
tables = ["public.users", "public.vehicles", "public.rides"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The command line of a demo."""

    directory: Path
    seconds: float
    writers: int
    stays: bool
    empty: bool

    @classmethod
    def parse(cls, arguments: Sequence[str], *, name: str, summary: str, directory: str) -> DemoOptions:
        """Parse the *arguments* of the demo *name*. Prints and exits for --help and for unknown arguments."""
        parser = argparse.ArgumentParser(prog=f"cdc demo {name}", description=summary)
        parser.add_argument(
            "--directory",
            type=Path,
            default=Path(directory),
            help="directory for everything that the demo writes (%(default)s)",
        )
        parser.add_argument("--seconds", type=float, default=20.0, help="how long the writers run (%(default)s)")
        parser.add_argument("--writers", type=int, default=3, help="how many writers run (%(default)s)")
        length = parser.add_mutually_exclusive_group()
        length.add_argument("--stay", action="store_true", help="let the writers run until Ctrl-C")
        length.add_argument("--empty", action="store_true", help="only start the servers, with an empty database")
        chosen = parser.parse_args(arguments)
        return cls(
            directory=chosen.directory.absolute(),
            seconds=chosen.seconds,
            writers=chosen.writers,
            stays=chosen.stay,
            empty=chosen.empty,
        )


class Shop:
    """The database `movr` on *server*, which the constructor creates and fills, and the writers that change it."""

    def __init__(self, server: EmbeddedPostgres, options: DemoOptions) -> None:
        self._options = options
        self.uri = server.uri("movr")
        self.source = _SOURCE.format(password=server.directory / "password", port=server.port)
        """The lines of a changefeed that name its source. The password is a reference to a file."""
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE movr")
        rows = load(self.uri)
        say(f"PostgreSQL is running with {rows} rows in {', '.join(TABLES)}")

    def follow(self, file: Path, state: Path, *, resolved: Callable[[], Timestamp]) -> bool:
        """Run the changefeed of *file* while writers change the database, and return whether it ended with status 0.

        *resolved* returns the resolved timestamp that a consumer has. The changefeed is stopped when it covers all
        changes. Raises: SystemExit when the changefeed ends earlier or makes no progress.
        """
        command = [sys.executable, "-P", "-m", "cdc_core", "run", str(file), "--state", str(state)]
        feed = subprocess.Popen(command, start_new_session=True)  # Ctrl-C ends the writers first
        try:
            _await("the changefeed's replication slot", self._has_slot, feed)
            workload = Workload(self.uri, writers=self._options.writers)
            workload.start()
            began = time.monotonic()
            with _watched(state):
                self._write(feed)
                workload.stop()
                took = time.monotonic() - began
                say(f"Writers changed {workload.changes} rows in {took:.0f} s; waiting for the last one")
                target = self._now()
                _await("the last changes", lambda: resolved() >= target, feed)
            feed.send_signal(signal.SIGINT)
            if feed.wait(_LIMIT_S) != 0:
                say(f"the changefeed ended with status {feed.returncode}")
                return False
        finally:
            if feed.poll() is None:
                feed.kill()
                feed.wait()
        return True

    def _write(self, feed: subprocess.Popen[bytes]) -> None:
        """Let the writers write for as long as the options say, or until the changefeed ends."""
        if not self._options.stays:
            threading.Event().wait(self._options.seconds)
            return
        told = threading.Event()
        before = signal.signal(signal.SIGINT, lambda _number, _frame: told.set())
        say("Everything keeps running until Ctrl-C")
        try:
            while feed.poll() is None and not told.wait(_POLL_INTERVAL_S):
                pass
        finally:
            signal.signal(signal.SIGINT, before)

    def _has_slot(self) -> bool:
        with psycopg.connect(self.uri) as connection:
            return connection.execute("SELECT 1 FROM pg_replication_slots WHERE NOT temporary").fetchone() is not None

    def _now(self) -> Timestamp:
        with psycopg.connect(self.uri) as connection:
            row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
        assert row is not None
        return Timestamp(row[0] * 1000)


def _await(what: str, condition: Callable[[], bool], feed: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    pause = threading.Event()
    while not condition():
        if feed.poll() is not None:
            raise SystemExit(f"demo: the changefeed ended with status {feed.returncode} while waiting for {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: waited {_LIMIT_S:.0f} s for {what}")
        pause.wait(0.1)


@contextmanager
def _watched(state: Path) -> Iterator[None]:
    """Serve the page inside the block, and print its address. Does nothing without the extra `serve` of cdc-core."""
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        yield
        return
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-P", "-m", "cdc_core", "serve", "--store", str(state), "--listen", address]
    server = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    say(f"Watch it at http://{address}/ui")
    try:
        yield
    finally:
        server.terminate()
        server.wait()
