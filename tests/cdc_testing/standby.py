"""A standby of a PostgreSQL server, to which the primary's failover slots are synchronized."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from cdc_rangefeed_postgres.demo import account
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.runs import eventually

_SLOT = "standby"
_SLOTS_ARE_SYNCHRONIZED = 170000
"""Since this version a standby can have the failover slots of its primary."""


def both_hosts(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> str:
    """Return a URI that leads to the one of the two that accepts writes. They have the same password."""
    parts = urlsplit(primary.uri())
    login, _, _ = parts.netloc.rpartition("@")
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"{parts.scheme}://{login}@{hosts}{parts.path}?target_session_attrs=read-write"


@contextmanager
def standby_of(primary: EmbeddedPostgres, *, feedback: bool = True) -> Iterator[EmbeddedPostgres]:
    """Yield a running standby. From now on each commit on *primary* waits for it, and so does logical decoding.

    *feedback*: whether the standby tells the primary which rows it needs.
    """
    directory = account.temporary_directory()
    account.give(directory)
    try:
        with psycopg.connect(primary.uri(), autocommit=True) as sql:
            synchronizes = sql.info.server_version >= _SLOTS_ARE_SYNCHRONIZED
            more = {"hot_standby_feedback": "on"} if feedback else {}
            more |= {"sync_replication_slots": "on"} if synchronizes else {}
            settings = {"fsync": "off", **_settings(primary), **more}
            standby = CopiedPostgres(directory, settings=settings, binaries=primary.binaries)
            sql.execute("SELECT pg_create_physical_replication_slot(%s, true)", [_SLOT])
            _copy(primary, standby)
            with standby:
                eventually("replication", lambda: sql.execute("SELECT FROM pg_stat_replication").rowcount == 1)
                if synchronizes:
                    sql.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{_SLOT}'")
                sql.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                sql.execute("SELECT pg_reload_conf()")
                shown = "SELECT sync_state FROM pg_stat_replication"
                eventually("synchronous replication", lambda: sql.execute(shown).fetchall() == [("sync",)])
                yield standby
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def slot_is_synchronized(standby: EmbeddedPostgres, slot: str) -> bool:
    """Whether *slot* would survive the promotion of *standby*."""
    query = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = %s"
    with psycopg.connect(standby.uri(), autocommit=True) as sql:
        row = sql.execute(query, [slot]).fetchone()
        return row is not None and bool(row[0])


def _settings(primary: EmbeddedPostgres) -> dict[str, str]:
    login = f"host=127.0.0.1 port={primary.port} user=postgres password={primary.password} dbname=postgres"
    return {"primary_conninfo": login, "primary_slot_name": _SLOT}


def _copy(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Copy the data of *primary* into the directory of *standby*, and its password."""
    password: Path = standby.directory / "password"
    password.touch(0o600)
    password.write_text(primary.password)
    account.give(password)
    login = _settings(primary)["primary_conninfo"]
    data = standby.directory / "data"
    command = ["pg_basebackup", "-d", login, "-D", str(data), "-X", "stream", "-S", _SLOT, "-c", "fast", "--no-sync"]
    newest = EmbeddedPostgres()  # its pg_basebackup can copy servers of every version
    try:
        done = subprocess.run(newest._command(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    finally:
        shutil.rmtree(newest.directory, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    (data / "standby.signal").touch()
    account.give(data / "standby.signal")
