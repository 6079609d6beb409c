"""The edge: how a file is opened, and what SQLite's errors mean to the engine."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote, urlsplit

from cdc_core import ConfigError, RefusedRowsError, RetryableSinkError, SinkContext, TerminalSinkError

_BAD_ROWS = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG}
_HOPELESS = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB}
_WAIT_S = {sqlite3.SQLITE_BUSY: 1.0, sqlite3.SQLITE_FULL: 30.0}  # for the rest the engine has waits of its own


def path_of(context: SinkContext) -> str:
    """Return the file that the URI names. Raises: ConfigError."""
    uri = urlsplit(context.uri)
    if uri.netloc or not uri.path.strip("/"):
        raise ConfigError(f"the sink's URI names no file: write {uri.scheme}:///path/to/file.db, with three slashes")
    return unquote(uri.path)


def connect(context: SinkContext, *, mode: str) -> sqlite3.Connection:
    """Return a connection whose commits are durable. *mode* is SQLite's: ro, rw, or rwc to create the file."""
    uri, timeout = f"file:{quote(path_of(context))}?mode={mode}", context.options.busy_timeout
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level="IMMEDIATE", check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def translated(context: SinkContext, *, setup: bool = False) -> Iterator[None]:
    """Raise an error of SQLite as what the engine shall do about it: find bad rows, stop, or else try again."""
    try:
        yield
    except sqlite3.Error as error:
        text, code = f"SQLite file '{path_of(context)}': {error}", getattr(error, "sqlite_errorcode", 0) & 0xFF
        if setup:
            raise ConfigError(text) from error
        if code in _BAD_ROWS:
            raise RefusedRowsError(text) from error
        if code in _HOPELESS:
            raise TerminalSinkError(text) from error
        raise RetryableSinkError(text, retry_after_s=_WAIT_S.get(code)) from error
