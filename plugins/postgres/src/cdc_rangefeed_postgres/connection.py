"""Connections to one PostgreSQL database, each under the name of what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc_core import ConfigError, OptionError, RangefeedContext
from cdc_core.masking import mask, secret_forms, uri_secrets
from cdc_core.options import did_you_mean
from cdc_rangefeed_postgres.failures import ClientError, text_of, translated
from cdc_rangefeed_postgres.names import application_name

__all__ = ["Connection", "Server", "set_lock_timeout", "stream"]

Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 10
# The forms that values are decoded from, and no limit that an administrator set for interactive sessions. row_security
# turns a table that would silently be read in part into an error.
_SESSION = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "row_security": "off",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "read\\ committed",
    "default_transaction_read_only": "off",
}


# Since 17, unknown before. It would end long reads.
_NO_TRANSACTION_TIMEOUT = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'"


class Server:
    """Opens connections for one changefeed. Connects to nothing by itself."""

    def __init__(self, context: RangefeedContext) -> None:
        self._context = context
        self._secrets = secret_forms(uri_secrets(context.uri))
        self._parameters: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Server({self.place})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The connection parameters of the URI. Raises: OptionError when libpq would not take it."""
        if self._parameters is None:
            self._parameters = _parse(self._context.uri)
        return self._parameters

    @property
    def place(self) -> str:
        """Host, port and database, for people."""
        found = self.parameters
        host = found.get("host") or found.get("hostaddr") or "the local socket"
        port = found.get("port") or "5432"
        return f"{host}:{port}/{found.get('dbname') or found.get('user') or ''}"

    def mask(self, text: str) -> str:
        """Return *text* without the secrets of the URI."""
        return mask(text, self._secrets)

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Turn client errors of the block into errors of our tree, see `failures.translated`."""
        with translated(doing, self.mask):
            yield

    def connect(self, role: str, *, replication: bool = False) -> Connection:
        """Return a psycopg connection in autocommit. Raises: client errors, untranslated."""
        keywords: dict[str, Any] = {"replication": "database"} if replication else {}
        connection = psycopg.connect(self._conninfo(role), autocommit=True, prepare_threshold=None, **keywords)
        connection.execute(_NO_TRANSACTION_TIMEOUT)
        return connection

    def connect_arrow(self, role: str) -> Any:
        """Return an ADBC connection in autocommit. Raises: client errors, untranslated."""
        connection = adbc.connect(self._conninfo(role), autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(_NO_TRANSACTION_TIMEOUT)
            cursor.fetchall()
        return connection

    def connect_checked(self) -> Connection:
        """Return a connection for looking around before the start. Raises: ConfigError in one sentence."""
        try:
            return self.connect("check")
        except ClientError as error:
            raise ConfigError(
                self.mask(f"cannot connect to PostgreSQL at {self.place}: {text_of(error)}: mend the source URI")
            ) from None

    def _conninfo(self, role: str) -> str:
        parameters = dict(self.parameters)
        settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        parameters["options"] = f"{parameters.get('options') or ''} {settings}".strip()
        parameters["application_name"] = application_name(self._context.changefeed, self._context.feed_id, role)
        parameters["client_encoding"] = "UTF8"
        parameters.setdefault("connect_timeout", _CONNECT_TIMEOUT_S)
        return make_conninfo(**parameters)


def set_lock_timeout(connection: Connection, seconds: float) -> None:
    """Let statements on *connection* fail that wait longer for a lock; 0 for never."""
    connection.execute(f"SET lock_timeout = '{int(seconds * 1000)}ms'")


def stream(cursor: Any, query: str, *, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Run *query* on an ADBC cursor and yield its rows in Arrow batches of about *batch_bytes*.

    Raises: client errors with their SQLSTATE. The public reader of the DBAPI layer would raise an OSError without it
    for what goes wrong after the first byte, and for these functions that is everything.
    """
    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(batch_bytes)})
    cursor.execute(query)
    yield from cursor._results.reader


def _parse(uri: str) -> dict[str, Any]:
    query = uri.partition("?")[2].partition("#")[0]
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()} - {"replication"}
    for parameter in filter(None, query.split("&")):
        name = parameter.partition("=")[0]
        if name not in known and name != "ssl":
            raise OptionError(f"source URI: PostgreSQL does not know parameter '{name}'{did_you_mean(name, known)}")
    try:
        return conninfo_to_dict(uri)
    except psycopg.Error:
        # libpq's message may hold a piece of the password.
        raise OptionError(
            "source URI cannot be read: write postgresql://user:password@host:port/database, with the reserved "
            "characters of user and password percent-encoded"
        ) from None
