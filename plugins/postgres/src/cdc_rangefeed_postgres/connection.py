"""Connections to the database of one changefeed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc_core import ConfigError, OptionError, RangefeedContext, did_you_mean, mask, secret_forms, uri_secrets
from cdc_rangefeed_postgres.client_errors import ClientError, text_of, translated
from cdc_rangefeed_postgres.names import application_name

__all__ = ["Connection", "KeptConnection", "Server", "set_lock_timeout", "stream"]

Connection = psycopg.Connection[tuple[Any, ...]]

# A server that vanished without a word, or a router that forgot a connection, is noticed within about a minute.
_NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_NEVER = 1 << 30
"""After so many executions a statement is prepared, unless it is to be prepared at once."""
# The text forms that the decoders read, and none of the limits that an administrator may have set for interactive
# sessions. With row_security off, a table that would silently be read in part is an error.
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
# These settings would end long reads, and sessions that wait. They exist since PostgreSQL 17 and 14, and older versions
# refuse the connection if they are among the options.
_NO_TIMEOUTS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('transaction_timeout', 'idle_session_timeout')"
)


class Server:
    """Opens connections for one changefeed. The constructor connects to nothing."""

    def __init__(self, context: RangefeedContext) -> None:
        self._context = context
        self._secrets = secret_forms(uri_secrets(context.uri))
        self._parameters: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Server({self.place})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The connection parameters in the URI. Raises: OptionError when libpq would refuse it."""
        if self._parameters is None:
            self._parameters = _parse(self._context.uri)
        return self._parameters

    @property
    def place(self) -> str:
        """Hosts, ports and database, for messages."""
        found = self.parameters
        hosts = (found.get("host") or found.get("hostaddr") or "the local socket").split(",")
        ports = (found.get("port") or "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        hosts = [f"[{host}]" if ":" in host else host for host in hosts]
        places = ",".join(f"{host}:{port or '5432'}" for host, port in zip(hosts, ports, strict=False))
        return f"{places}/{found.get('dbname') or found.get('user') or ''}"

    def mask(self, text: str) -> str:
        """Return *text* without the secrets of the URI."""
        return mask(text, self._secrets)

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Turn client errors inside the block into errors of cdc_core, see `client_errors.translated`."""
        with translated(doing, self.mask):
            yield

    def connect(self, role: str, *, replication: bool = False) -> Connection:
        """Return a psycopg connection in autocommit mode. Raises: client errors, not translated."""
        keywords: dict[str, Any] = {"replication": "database"} if replication else {}
        connection = psycopg.connect(self._conninfo(role), autocommit=True, prepare_threshold=None, **keywords)
        connection.execute(_NO_TIMEOUTS)
        return connection

    def connect_arrow(self, role: str) -> Any:
        """Return an ADBC connection in autocommit mode. Raises: client errors, not translated."""
        connection = adbc.connect(self._conninfo(role), autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(_NO_TIMEOUTS)
            cursor.fetchall()
        return connection

    def connect_checked(self) -> Connection:
        """Return a connection for checks before the start. Raises: ConfigError."""
        try:
            return self.connect("check")
        except ClientError as error:
            raise ConfigError(
                self.mask(f"cannot connect to PostgreSQL at {self.place}: {text_of(error)}. Fix the source URI")
            ) from None

    def _conninfo(self, role: str) -> str:
        parameters = dict(self.parameters)
        work_mem = self._context.options.logical_decoding_work_mem
        session = {**_SESSION, "logical_decoding_work_mem": f"{work_mem // 1024}kB"}
        settings = " ".join(f"-c {name}={value}" for name, value in session.items())
        parameters["options"] = f"{parameters.get('options') or ''} {settings}".strip()
        parameters["application_name"] = application_name(self._context.changefeed, self._context.feed_id, role)
        parameters["client_encoding"] = "UTF8"
        return make_conninfo(**{**_NETWORK, **parameters})


class KeptConnection:
    """One psycopg connection for many calls: opened on first use, and again after it was lost.

    It prepares the statements that are executed with `prepare=True`; other connections prepare none.
    """

    def __init__(self, server: Server, role: str, *, lock_timeout_s: float = 0.0) -> None:
        self._server = server
        self._role = role
        self._lock_timeout_s = lock_timeout_s
        self._connection: Connection | None = None

    def open(self) -> Connection:
        """Return the connection. Raises: client errors, not translated."""
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect(self._role)
            self._connection.prepare_threshold = _NEVER
            if self._lock_timeout_s:
                set_lock_timeout(self._connection, self._lock_timeout_s)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def set_lock_timeout(connection: Connection, seconds: float) -> None:
    """Limit how long statements on *connection* wait for a lock; 0 is no limit."""
    connection.execute(f"SET lock_timeout = '{int(seconds * 1000)}ms'")


def stream(cursor: Any, query: str, *, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Run *query* on an ADBC cursor and yield its rows in Arrow batches of about *batch_bytes*.

    Raises: client errors with their SQLSTATE. The public reader of the DBAPI layer raises an OSError without SQLSTATE
    for errors after the first byte, and the functions that read the log report every error there.
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
        # libpq's message may contain a part of the password.
        raise OptionError(
            "source URI: not a valid PostgreSQL URI. Write postgresql://user:password@host:port/database and "
            "percent-encode reserved characters in user and password"
        ) from None
