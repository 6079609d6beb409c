"""What every demo does: people work in a database while `cdc run` follows it, until all they did is resolved."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.movr import TABLES, Workload, load
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres

__all__ = ["DemoOptions", "Shop", "say", "shown"]

_LIMIT_S = 180.0
_SOURCE = """\
source = "postgresql://postgres:${{file:{password}}}@127.0.0.1:{port}/movr"
tables = ["public.users", "public.vehicles", "public.rides"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line of a demo says."""

    directory: Path
    seconds: float
    writers: int

    @classmethod
    def parse(cls, arguments: Sequence[str], *, name: str, summary: str, directory: str) -> DemoOptions:
        """Read the *arguments* of the demo *name*; prints and exits for --help and for what it does not know."""
        parser = argparse.ArgumentParser(prog=f"cdc demo {name}", description=summary)
        parser.add_argument(
            "--directory", type=Path, default=Path(directory), help="where everything goes (%(default)s)"
        )
        parser.add_argument("--seconds", type=float, default=20.0, help="how long people work (%(default)s)")
        parser.add_argument("--writers", type=int, default=3, help="how many work at once (%(default)s)")
        chosen = parser.parse_args(arguments)
        return cls(directory=chosen.directory.absolute(), seconds=chosen.seconds, writers=chosen.writers)


class Shop:
    """The database `movr` on *server*, made and filled by the constructor, and people who will work in it."""

    def __init__(self, server: EmbeddedPostgres, options: DemoOptions) -> None:
        self._options = options
        self.uri = server.uri("movr")
        self.source = _SOURCE.format(password=server.directory / "password", port=server.port)
        """The lines of a changefeed that say what it follows; the password stays in a file."""
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE movr")
        rows = load(self.uri)
        say(f"PostgreSQL is up with {rows} rows in {', '.join(TABLES)}")

    def follow(self, file: Path, state: Path, *, resolved: Callable[[], Timestamp]) -> bool:
        """Run the changefeed of *file* while people work, and return whether it ended well.

        It is stopped when *resolved*, which says what a consumer has, covers all that they did. Raises: SystemExit when
        the changefeed ends before, or does not get on.
        """
        feed = subprocess.Popen([sys.executable, "-m", "cdc_core", "run", str(file), "--state", str(state)])
        try:
            _await("the changefeed's replication slot", self._has_slot, feed)
            workload = Workload(self.uri, writers=self._options.writers)
            workload.start()
            threading.Event().wait(self._options.seconds)
            workload.stop()
            say(f"People changed {workload.changes} rows in {self._options.seconds:.0f} s; waiting for the rest")
            target = self._now()
            _await("the last changes to be resolved", lambda: resolved() >= target, feed)
            feed.send_signal(signal.SIGINT)
            if feed.wait(_LIMIT_S) != 0:
                say(f"the changefeed ended with status {feed.returncode}")
                return False
        finally:
            if feed.poll() is None:
                feed.kill()
                feed.wait()
        return True

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
            raise SystemExit(f"demo: the changefeed ended with status {feed.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: {what} did not come in {_LIMIT_S:.0f} s")
        pause.wait(0.1)


def say(text: str) -> None:
    """Print *text* at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def shown(path: Path) -> str:
    """Return *path* as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
