"""The edge: opens the SQLite file and translates errors of SQLite for the engine.

Replace it by the client of your destination. Do not put SQLite files on a network file system.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cdc_core import RefusedRowsError, RetryableSinkError, SinkContext, TerminalSinkError

INSERT = "INSERT INTO messages (topic, key, value) VALUES (?, ?, ?)"

_ERRORS = {sqlite3.IntegrityError: RefusedRowsError, sqlite3.DatabaseError: TerminalSinkError}
"""What the engine must do about an error. Any other error may pass: a locked file, a full disk."""


def path_of(context: SinkContext) -> Path:
    """Return the path in the sink URI."""
    return Path(unquote(urlsplit(context.uri).path))


@contextmanager
def transaction(context: SinkContext, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """Open the file. Commit durably when the block ends; roll back when it raises.

    *mode* is SQLite's: ro, rw, or rwc to create the file.
    """
    uri = f"{path_of(context).as_uri()}?mode={mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=context.options.busy_timeout)) as connection, connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
    except sqlite3.DatabaseError as error:
        raise _ERRORS.get(type(error), RetryableSinkError)(f"SQLite file '{path_of(context)}': {error}") from error


class Closable:
    """A part of the sink that refuses to work after `close`: a closed sink that accepts rows would lose them."""

    context: SinkContext
    _closed = False

    @property
    def opened(self) -> SinkContext:
        """The context. Raises: TerminalSinkError after `close`."""
        if self._closed:
            raise TerminalSinkError("the template sink is closed")
        return self.context

    def close(self) -> None:
        self._closed = True
