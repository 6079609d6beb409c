"""The progress store's tables, and how a database is opened and upgraded."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError

__all__ = [
    "CHANGEFEEDS",
    "DEAD_LETTERS",
    "SCHEMA_VERSION",
    "UNRECORDED",
    "open_engine",
    "prepare",
    "sqlite_file",
    "store_url",
    "update",
]

SCHEMA_VERSION = 3
"""Version of the tables below. A store with a greater version was written by newer code and is refused."""

_ADDED = {2: ("plan", "paused", "recorded", "unrecorded"), 3: ("emitted",)}
"""By version, the columns that it added to the changefeeds. Missing tables are created anyway."""

_BUSY_S = 30.0
"""How long SQLite waits for others that write."""

_METADATA = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # the only type that SQLite increments by itself
_STORE = sa.Table("cdc_store", _METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
CHANGEFEEDS = sa.Table(
    "cdc_changefeeds",
    _METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("feed_id", sa.String(12), nullable=False, unique=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.Column("token", sa.Text),
    sa.Column("frontier", sa.Text),
    sa.Column("latest", sa.String(40)),
    sa.Column("counters", sa.Text),
    sa.Column("saved_at", sa.String(32)),
    sa.Column("plan", sa.Text),
    sa.Column("paused", sa.Text),
    sa.Column("recorded", sa.Text),
    sa.Column("unrecorded", sa.Text),
    sa.Column("emitted", sa.Text),
)
UNRECORDED = sa.Table(
    "cdc_delivered",
    _METADATA,
    sa.Column("id", _NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("entry", sa.Text, nullable=False),
    sa.Column("mark", sa.String(40)),
)
DEAD_LETTERS = sa.Table(
    "cdc_dead_letters",
    _METADATA,
    sa.Column("id", _NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("updated", sa.String(40), nullable=False),
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("put_aside_at", sa.String(32), nullable=False),
    sa.Column("replayed_at", sa.String(32)),
    sa.Index("ix_cdc_dead_letters_waiting", "name", "replayed_at"),
)


def store_url(directory: Path) -> str:
    """Return the URL of the store that lives in a file in *directory*."""
    return sa.URL.create("sqlite", database=str(directory.absolute() / "progress.sqlite")).render_as_string()


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite store, None for any other store and for an invalid URL."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return None
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def open_engine(url: str) -> sa.Engine:
    """Return an engine that connects lazily and whose commits are durable. Raises: ConfigError for an invalid URL.

    A SQLite file gets its directory created, write-ahead logging, a full sync at every commit, and transactions that
    take the write lock at once unless they only read (execution option `cdc_reading`), so that processes wait for each
    other instead of failing.
    """
    try:
        parsed = sa.make_url(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() != "sqlite":
            return sa.create_engine(parsed, pool_size=1, max_overflow=1, pool_pre_ping=True)
    except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
        raise ConfigError(f"the progress store's URL cannot be used: {error}") from error
    path = Path(parsed.database or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"'{path.parent}' cannot be used as the state directory: {error.strerror}") from error
    engine = sa.create_engine(parsed, poolclass=sa.QueuePool, pool_size=1, connect_args={"timeout": _BUSY_S})
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def prepare(engine: sa.Engine, *, shown: str) -> None:
    """Return when the store's tables exist in the version of this code. Raises: ConfigError."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":  # two processes may find the store empty at the same time
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('cdc_store'))"))
        _METADATA.create_all(connection)
        version = connection.execute(sa.select(sa.func.max(_STORE.c.version))).scalar_one()
        if version is None:
            connection.execute(sa.insert(_STORE).values(version=SCHEMA_VERSION))
        elif version < SCHEMA_VERSION:
            _upgrade(connection, version)
        elif version > SCHEMA_VERSION:
            raise ConfigError(
                f"progress store {shown} was written by a newer cdc-core (its version is {version}, this one knows "
                f"{SCHEMA_VERSION}); upgrade cdc-core"
            )


def _upgrade(connection: sa.Connection, version: int) -> None:
    for newer in range(version + 1, SCHEMA_VERSION + 1):
        for name in _ADDED[newer]:
            connection.execute(sa.text(f"ALTER TABLE {CHANGEFEEDS.name} ADD COLUMN {name} TEXT"))
    connection.execute(sa.update(_STORE).values(version=SCHEMA_VERSION))


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not open transactions of its own
    cursor = connection.cursor()
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """Switch to WAL. When several connections do so with a new file at once, some fail without waiting."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("cdc_reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def update(name: str) -> sa.Update:
    """Return an update of the row of changefeed *name*."""
    return sa.update(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)
