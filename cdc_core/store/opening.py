"""How the database of the progress store is found, opened, created and upgraded."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.store.job_tables import CLUSTER
from cdc_core.store.tables import CHANGEFEEDS, METADATA, SCHEMA_VERSION, STORE

CONNECTIONS = 8
"""How many connections an engine has at most. Not for SQLite."""
_KEPT = 2
"""How many of them stay open while nobody uses them."""
WAIT_S = 30.0
"""How long a call waits for a connection when all are in use."""
_UNSURE_S = 0.5
"""A connection that was not used for so long is tried first: its server may have been restarted."""
_BUSY_S = 30.0
"""How long SQLite waits for others that write."""
_POSTGRESQL_LIMITS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""Parameters of libpq: a server that vanished without a word must not hold up a run for longer."""
_LIBPQ = ("psycopg", "psycopg2")
_LOOPBACK = ("127.0.0.1", "::1")
_POSTGRESQL_SETTINGS = {
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "30s",
    "tcp_user_timeout": "30s",
    "tcp_keepalives_idle": "30s",
}
"""A host that vanished in the middle of a transaction must not keep its locks, or no other could take over. Several of
its transactions may have waited for each other: each begins to be idle when the one before it is ended."""
_POSTGRESQL_SESSION = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', false)" for name, value in _POSTGRESQL_SETTINGS.items()
)


def store_url(directory: Path) -> str:
    """Return the URL of the store that lives in a file in *directory*. Raises: ConfigError for a path without a URL."""
    path = str(directory.absolute() / "progress.sqlite")
    try:
        return sa.URL.create("sqlite", database=path).render_as_string()
    except UnicodeEncodeError:
        raise ConfigError(
            f"progress store {os.fsencode(path)!r}: the path is not UTF-8; use another directory"
        ) from None


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite store, None for any other store and for an invalid URL."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return None
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def store_place(url: str) -> str:
    """Return where a store is: the same for its URL in other words, and without secrets. *url* must be valid."""
    file = sqlite_file(url)
    if file is not None:
        return str(file.resolve())
    parsed = sa.make_url(url)
    named = dict(parsed.query)
    hosts = parsed.host or named.get("host") or "localhost"
    host = hosts.lower() if isinstance(hosts, str) else ",".join(sorted(hosts))
    place = f"{'localhost' if host in _LOOPBACK else host}:{parsed.port or named.get('port') or 5432}"
    more = "".join(f" {name}={named[name]}" for name in ("hostaddr", "service", "options") if name in named)
    return f"{parsed.get_backend_name()}://{place}/{parsed.database or named.get('dbname') or ''}{more}"


def store_exists(url: str) -> bool:
    """Return whether there is a store at *url*; create nothing. One that cannot be reached may exist.

    Raises: ConfigError for an invalid URL, or a directory that this user may not enter.
    """
    file = sqlite_file(url)
    if file is not None:
        try:
            return file.is_file()
        except OSError as error:
            why = f"{error.strerror}; run this as the user who runs its changefeeds"
            raise ConfigError(f"progress store {file} cannot be used: {why}") from error
    engine = open_engine(url)
    try:
        return sa.inspect(engine).has_table(STORE.name)
    except sa.exc.SQLAlchemyError:
        return True
    finally:
        engine.dispose()


def stored_names(url: str) -> list[str]:
    """Return the names of the changefeeds in the store as it is: it is neither created nor upgraded for this."""
    if not store_exists(url):
        return []
    engine = open_engine(url)
    try:
        with engine.execution_options(cdc_reading=True).begin() as connection:
            return list(connection.execute(sa.select(CHANGEFEEDS.c.name).order_by(CHANGEFEEDS.c.name)).scalars())
    finally:
        engine.dispose()


def open_engine(url: str) -> sa.Engine:
    """Return an engine that connects lazily and whose commits are durable. Raises: ConfigError for an invalid URL.

    A SQLite file is created with its directory, both for this user alone. It gets write-ahead logging, a full sync at
    every commit, and transactions that take the write lock at once unless they only read (execution option
    `cdc_reading`), so that processes wait for each other instead of failing.
    """
    try:
        parsed = _usable(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "postgresql" and parsed.get_driver_name() in _LIBPQ:
            limits = {name: value for name, value in _POSTGRESQL_LIMITS.items() if name not in parsed.query}
            parsed = parsed.update_query_dict(limits)
        if parsed.get_backend_name() != "sqlite":
            engine = sa.create_engine(
                parsed, pool_size=_KEPT, max_overflow=CONNECTIONS - _KEPT, pool_timeout=WAIT_S, pool_use_lifo=True
            )
            sa.event.listen(engine, "checkin", _note_use)
            sa.event.listen(engine, "checkout", _try_unless_used(engine.dialect))
            if parsed.get_backend_name() == "postgresql":
                sa.event.listen(engine, "connect", _set_up_postgresql)
            return engine
    except (sa.exc.ArgumentError, ValueError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the progress store's URL cannot be used: {error}; write postgresql://USER@HOST:PORT/DATABASE or "
            "sqlite:////PATH"
        ) from error
    path = Path(parsed.database or "")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"'{path.parent}' cannot be used as the state directory: {error.strerror}") from error
    how = {"timeout": _BUSY_S, "factory": _WithoutFunctions}
    engine = sa.create_engine(parsed, poolclass=sa.QueuePool, pool_size=1, connect_args=how)
    sa.event.listen(engine, "do_connect", lambda *_: _create_private(path))
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _usable(url: str) -> sa.URL:
    """Return *url* parsed. Raises: ValueError, also where a server would name part of the password; ArgumentError."""
    try:
        parsed = sa.make_url(url)
    except ValueError:
        raise ValueError("its port is not a number (name several hosts as ?host=HOST:PORT&host=HOST:PORT)") from None
    if "@" in (parsed.host or ""):
        raise ValueError("its password must be percent-encoded: @ is %40")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ValueError("progress in memory would be lost with the process")
    return parsed


def prepare(engine: sa.Engine, *, shown: str) -> None:
    """Return when the store's tables exist in the version of this code. Raises: ConfigError.

    A store that an older version wrote is upgraded, in one transaction. Processes that open a store at the same time
    wait for each other.
    """
    with engine.execution_options(cdc_reading=True).begin() as connection:
        version = _version(connection)
    if version == SCHEMA_VERSION:
        return
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":  # two processes may find the store empty at the same time
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('cdc_store'))"))
        version = _version(connection)
        if version is None:
            METADATA.create_all(connection)
            connection.execute(sa.insert(STORE).values(version=SCHEMA_VERSION))
            connection.execute(sa.insert(CLUSTER).values(id=1, node_id="", epoch=0, files="{}", salt=uuid.uuid4().hex))
        elif version < SCHEMA_VERSION:
            from cdc_core.store.upgrading import upgrade  # loads Alembic, which most processes do without

            upgrade(connection, version)
        elif version > SCHEMA_VERSION:
            raise ConfigError(
                f"progress store {shown} was written by a newer cdc-core (the store has version {version}, this"
                f" cdc-core supports {SCHEMA_VERSION}); upgrade cdc-core"
            )


def _version(connection: sa.Connection) -> int | None:
    """Return the version of the store's tables, None when there are none."""
    if not sa.inspect(connection).has_table(STORE.name):
        return None
    version: int | None = connection.execute(sa.select(sa.func.max(STORE.c.version))).scalar_one()
    return version


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(_POSTGRESQL_SESSION)
    cursor.close()
    connection.commit()


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _try_unless_used(dialect: sa.Dialect) -> Callable[[Any, Any, Any], None]:
    """Return what tries a connection of the pool: a broken one is replaced before anything is asked of it."""

    def try_connection(connection: Any, record: Any, _proxy: Any) -> None:
        used_at = record.info.get("used_at")  # None of a new one
        if used_at is None or time.monotonic() - used_at < _UNSURE_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError from error

    return try_connection


class _WithoutFunctions(sqlite3.Connection):
    """A connection without the functions in Python that SQLAlchemy adds.

    SQLite releases them when a connection closes: a thread that closes one while Python ends would crash the process.
    """

    def create_function(self, *_: Any, **__: Any) -> None:
        pass


def _create_private(file: Path) -> None:
    """Return when only this user can read *file*, if it is new. SQLite gives its other files the same mode."""
    with suppress(OSError):  # it already exists, or SQLite says why it cannot be
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


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
