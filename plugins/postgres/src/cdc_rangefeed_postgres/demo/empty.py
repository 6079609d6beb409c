"""`cdc demo NAME --empty`: the servers of a demo with nothing in them, to try changefeeds with."""

from __future__ import annotations

import shlex
import signal
import threading
from pathlib import Path

import psycopg

from cdc_rangefeed_postgres.demo.saying import say, shown
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres


def stay(server: EmbeddedPostgres, directory: Path, **variables: str) -> int:
    """Create the database `shop` on *server*, and return 0 on Ctrl-C or SIGTERM.

    Until then the file `env` in *directory* sets DATABASE_URL and *variables* in a shell, and has its PATH find `psql`.
    """
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    values = {"DATABASE_URL": server.uri("shop"), **variables}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: told.set())
    env = directory / "env"
    env.unlink(missing_ok=True)
    env.touch(0o600)  # it has a password
    env.write_text("\n".join([*lines, f'PATH="$PATH:{server.binaries}"', ""]))
    say(f"An empty PostgreSQL is running until Ctrl-C. In another terminal:  . {shown(env)}")
    told.wait()
    env.unlink()
    return 0
