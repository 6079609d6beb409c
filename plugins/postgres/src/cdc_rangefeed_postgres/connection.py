"""Connections to the database of one changefeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc_core import ConfigError, OptionError, RangefeedContext, did_you_mean, mask, secret_forms, uri_secrets
from cdc_rangefeed_postgres.client_errors import ClientError, is_refused, text_of, translated
from cdc_rangefeed_postgres.endpoints import Endpoint, closer_first, parse_endpoints
from cdc_rangefeed_postgres.login_state import with_state
from cdc_rangefeed_postgres.names import application_name

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

# A server that vanished without a word, or a router that forgot a connection, is noticed within about a minute.
_NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# A plan for certain oids is no better than one for any, and planning takes longer than these statements themselves.
_PLANNED_ONCE = "SET plan_cache_mode = force_generic_plan"
_NEVER = 1 << 30
"""After so many executions a statement is prepared, unless it is to be prepared at once."""
# Every setting of a role or a database that changes what the server answers to us, or how. In turn: the text forms that
# the decoders read, how names and literals are written and read, what a transaction may do, the limits for interactive
# sessions, and plans that read a whole table for each piece of a scan. With row_security off, a table that would
# silently be read in part is an error. lc_monetary stays: it decides what a stored amount of money means.
_SESSION = {
    "DateStyle": "ISO,MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "client_min_messages": "warning",
    "exit_on_error": "off",
    "row_security": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "enable_tidscan": "on",
    "enable_indexscan": "on",
    "jit": "off",
}
# These settings would end long reads, and sessions that wait. They exist since PostgreSQL 17 and 14, and older versions
# refuse the connection if they are among the options.
_NO_TIMEOUTS = {"transaction_timeout": "0", "idle_session_timeout": "0"}
_VALUES = ", ".join(map(str, {**_SESSION, **_NO_TIMEOUTS, "client_encoding": "UTF8"}.items()))
# A login event trigger may have changed what the options set.
_SET = (
    f"SELECT pg_catalog.set_config(name, value, false) FROM (VALUES {_VALUES}) AS settings (name, value)"
    " WHERE pg_catalog.current_setting(name, true) IS NOT NULL"
)
# All values but enums are read as one of PostgreSQL's own types; enums come as bytes. By default the driver reads the
# columns and types of all tables whenever it connects: 70 ms of processor time with an empty database.
_BUILTIN_TYPES = {"adbc.postgresql.type_resolver_mode": "builtin"}

DATABASE_ENCODING = "SELECT pg_catalog.getdatabaseencoding()::text"
ANY_BYTES = "SQL_ASCII"
"""The encoding of databases that take any bytes for texts. A client that has it too gets them as they are; for another
one, the server fails at the first ones that are not UTF-8, without a word about the row."""


class Server:
    """Opens connections for one changefeed: to its source, or to the endpoint that `use` names.

    Before the first `use`, connections are to the first of source and endpoints that can be reached. The constructor
    connects to nothing.
    """

    def __init__(self, context: RangefeedContext) -> None:
        self._context = context
        self._endpoints: Sequence[Endpoint] = (
            () if context.options is None else parse_endpoints(context.options.endpoints)
        )
        uris = [context.uri, *(endpoint.uri for endpoint in self._endpoints)]
        self._secrets = secret_forms(secret for uri in uris for secret in uri_secrets(uri))
        self._servers: dict[str, dict[str, Any]] = {}
        self._used: str | None = None if self._endpoints else ""
        self.uses = 0
        """How often `use` has named another one."""

    def __repr__(self) -> str:
        return f"Server({self.place})"

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The option `endpoints`, by the name that tokens have: the place, and "" for the source.

        Raises: OptionError.
        """
        source = self.place_of("")
        found: dict[str, Endpoint] = {}
        for endpoint in self._endpoints:
            place = _place(_parse(endpoint.uri, "uri in option 'endpoints'"))
            name = "" if place == source else place
            if name in found:
                raise OptionError(f"option 'endpoints' has {place} twice. Remove one of them")
            found[name] = endpoint
        return found

    @property
    def used(self) -> str:
        """The endpoint that `use` named last, "" for the source."""
        return self._used or ""

    def use(self, endpoint: str) -> bool:
        """Connect to *endpoint* from now on, "" for the source. Return whether kept connections may be to another."""
        if self._used == endpoint:
            return False
        self._used = endpoint
        self.uses += 1
        return True

    @property
    def parameters(self) -> dict[str, Any]:
        """The connection parameters in the URI. Raises: OptionError when libpq would refuse it."""
        return self._parameters_of(self.used)

    @property
    def place(self) -> str:
        """Hosts, ports and database, for messages."""
        return self.place_of(self.used)

    def place_of(self, endpoint: str) -> str:
        """Return hosts, ports and database of *endpoint*."""
        return endpoint or _place(self._parameters_of(""))

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
        return self._first(lambda endpoint: self.connect_to(endpoint, role, replication=replication))

    def connect_to(self, endpoint: str, role: str, *, replication: bool = False) -> Connection:
        """Do what `connect` does, at *endpoint*, whichever is used."""
        keywords: dict[str, Any] = {"replication": "database"} if replication else {}
        conninfo = self._conninfo(endpoint, role)
        try:
            connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None, **keywords)
        except psycopg.OperationalError as error:
            raise (error if is_refused(error) else with_state(error, make_conninfo(conninfo, **keywords))) from None
        try:
            connection.execute(_SET)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_arrow(self, role: str) -> Any:
        """Return an ADBC connection in autocommit mode. Raises: client errors, not translated."""
        connection = self._first(
            lambda endpoint: adbc.connect(self._conninfo(endpoint, role), _BUILTIN_TYPES, autocommit=True)
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(_SET)
                cursor.fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_checked(self) -> Connection:
        """Return a connection for checks before the start. Raises: ConfigError."""
        try:
            return self.connect("check")
        except ClientError as error:
            raise ConfigError(
                self.mask(f"cannot connect to PostgreSQL at {self.place}: {text_of(error)}. Fix the source URI"),
                repairable=True,
            ) from None

    def _first(self, connect: Callable[[str], T]) -> T:
        """Return what *connect* returns for the endpoint that is used, or for the first that can be reached."""
        if self._used is not None or not self._endpoints:
            return connect(self.used)
        failure: BaseException | None = None
        for endpoint in dict.fromkeys(("", *closer_first(self.endpoints, self._context.locality))):
            try:
                return connect(endpoint)
            except ClientError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def _parameters_of(self, endpoint: str) -> dict[str, Any]:
        if endpoint not in self._servers:
            uri = self.endpoints[endpoint].uri if endpoint else self._context.uri
            self._servers[endpoint] = _parse(uri, "uri in option 'endpoints'" if endpoint else "source URI")
        return self._servers[endpoint]

    def _conninfo(self, endpoint: str, role: str) -> str:
        parameters = dict(self._parameters_of(endpoint))
        work_mem = self._context.options.logical_decoding_work_mem
        session = {name: value.replace(" ", "\\ ") for name, value in _SESSION.items()}
        session["logical_decoding_work_mem"] = f"{work_mem // 1024}kB"
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
        self._uses = 0

    def open(self) -> Connection:
        """Return the connection. Raises: client errors, not translated."""
        if self._uses != self._server.uses:
            self.close()
            self._uses = self._server.uses
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect(self._role)
            self._connection.prepare_threshold = _NEVER
            self._connection.execute(_PLANNED_ONCE)
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


def give_any_bytes(connection: Any) -> bool:
    """Return whether the database takes any bytes for texts; then *connection*, of ADBC, gives them as they are."""
    with connection.cursor() as cursor:
        cursor.execute(DATABASE_ENCODING)
        if cursor.fetchone() != (ANY_BYTES,):
            return False
        cursor.execute(f"SET client_encoding = '{ANY_BYTES}'")
        cursor.fetchall()
        return True


@contextmanager
def any_bytes(connection: Connection) -> Iterator[None]:
    """Do what `give_any_bytes` does, for a connection of psycopg and inside this block. Queries are bytes there."""
    if connection.execute(DATABASE_ENCODING).fetchone() != (ANY_BYTES,):
        yield
        return
    connection.execute(f"SET client_encoding = '{ANY_BYTES}'".encode())
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # it is closed then
            connection.execute(b"SET client_encoding = 'UTF8'")


def stream(cursor: Any, query: str, *, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Run *query* on an ADBC cursor and return its rows in Arrow batches of about *batch_bytes*.

    Raises, also while they are taken: client errors with their SQLSTATE. The public reader of the DBAPI layer raises an
    OSError without SQLSTATE for errors after the first byte, where the functions that read the log report all.
    """
    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(batch_bytes)})
    cursor.execute(query)
    return iter(cursor._results.reader)


def _place(parameters: Mapping[str, Any]) -> str:
    hosts = (parameters.get("host") or parameters.get("hostaddr") or "the local socket").split(",")
    ports = (parameters.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    hosts = [f"[{host}]" if ":" in host else host for host in hosts]
    places = ",".join(f"{host}:{port or '5432'}" for host, port in zip(hosts, ports, strict=False))
    return f"{places}/{parameters.get('dbname') or parameters.get('user') or ''}"


def _parse(uri: str, what: str) -> dict[str, Any]:
    query = uri.partition("?")[2].partition("#")[0]
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()} - {"replication"}
    for parameter in filter(None, query.split("&")):
        name = parameter.partition("=")[0]
        if name not in known and name != "ssl":
            raise OptionError(f"{what}: PostgreSQL does not know parameter '{name}'{did_you_mean(name, known)}")
    try:
        return conninfo_to_dict(uri)
    except psycopg.Error:
        # libpq's message may contain a part of the password.
        raise OptionError(
            f"{what}: not a valid PostgreSQL URI. Write postgresql://user:password@host:port/database and "
            "percent-encode reserved characters in user and password"
        ) from None
