"""PostgreSQL as a source of row changes: the initial scan, then the log of a logical replication slot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from cdc_core import (
    ConfigError,
    Mark,
    Rangefeed,
    RangefeedContext,
    RowBatch,
    ScanProgress,
    Slice,
    StepLimit,
    TableSchema,
    Timestamp,
    Token,
)
from cdc_rangefeed_postgres.catalog import Catalog, Table, load_tables
from cdc_rangefeed_postgres.checks import check_server, check_tables, check_version, require_tables
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.failures import ClientError, text_of
from cdc_rangefeed_postgres.log import LogSlice, read_log, table_lookup
from cdc_rangefeed_postgres.names import object_name, parse_tables
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.planner import Planner
from cdc_rangefeed_postgres.position import Position, is_intent, parse_lsn
from cdc_rangefeed_postgres.scan import ScanSlice, read_scan
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.starting import first_position, resumed_position
from cdc_rangefeed_postgres.versions import schemas_of

__all__ = ["PostgresRangefeed"]

log = logging.getLogger(__name__)

_METRICS = """
SELECT (pg_wal_lsn_diff(l.lsn, s.restart_lsn))::float8, (pg_wal_lsn_diff(l.lsn, s.confirmed_flush_lsn))::float8,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8 FROM pg_stat_activity a
        WHERE a.application_name LIKE %s)
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn) l
WHERE s.slot_name = %s
"""


class PostgresRangefeed(Rangefeed):
    """See `cdc_core.Rangefeed`. Each instance opens the connections that its process needs, when it needs them."""

    repeats_steps: ClassVar[bool] = True

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._server = Server(context)
        self._slot = Slot(name=object_name(context.changefeed, context.feed_id), feed_id=context.feed_id)
        self._planner: Planner | None = None
        self._connections: dict[str, Connection] = {}
        self._arrow: dict[str, Any] = {}
        self._position: Position | None = None
        self._nudged = 0

    @property
    def _options(self) -> PostgresOptions:
        options = self.context.options
        assert isinstance(options, PostgresOptions)
        return options

    # driver

    def check(self) -> None:
        names = parse_tables(self.context.tables)
        connection = self._server.connect_checked()
        try:
            check_version(connection)
            exists = self._slot.state(connection) is not None
            check_server(connection, exists=exists, scan=self.context.initial_scan and not exists)
            catalog = load_tables(connection, publication=self._slot.name, names=names)
            tables = require_tables(connection, catalog, names)
            check_tables(connection, tables, diff=self.context.diff, exists=exists)
        except ClientError as error:
            raise ConfigError(
                self._server.mask(f"PostgreSQL at {self._server.place} could not be checked: {text_of(error)}")
            ) from None
        finally:
            connection.close()

    def schemas(self) -> Sequence[TableSchema]:
        with self._server.translated("reading the tables' schemas"):
            connection = self._connect("driver")
            catalog, _ = self._load(connection)
            return schemas_of(connection, catalog, self._position.tables if self._position is not None else None)

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        with self._server.translated("starting"):
            connection = self._connect("driver")
            if saved is None or is_intent(saved):
                self._position = first_position(
                    connection, self._slot, self.context, lambda: self._load(connection), save
                )
            else:
                names = {f"{schema}.{table}" for schema, table in parse_tables(self.context.tables)}
                self._position = resumed_position(connection, self._slot, Position.from_token(saved), names)
            return self._position.to_token()

    def now(self) -> Timestamp:
        with self._server.translated("reading the clock"):
            row: Any = self._connect("driver").execute(CLOCK_US).fetchone()
            return Timestamp(row[0] * 1000 + 999)

    def drop(self, saved: Token | None) -> None:  # noqa: ARG002
        with self._server.translated("dropping the replication slot"):
            self._slot.drop(self._connect("driver"))

    # planner

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        position = Position.from_token(start)
        end = self._plan().advance(position, after=_since(position, after), limit=limit)
        return start if end is position else end.to_token()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return self._plan().slices(Position.from_token(end), after=_since(Position.from_token(start), after))

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        position = Position.from_token(start)
        return self._plan().repeat(position, Position.from_token(end), after=_since(position, after))

    # executor

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        payload = slice_.payload
        role = "log" if isinstance(payload, LogSlice) else "scan"
        with self._server.translated("connecting"):
            connection = self._connect_arrow(role)
        finished = False
        try:
            if isinstance(payload, LogSlice):
                yield from read_log(
                    self._server,
                    connection,
                    payload,
                    self._options,
                    diff=self.context.diff,
                    mvcc=self.context.mvcc,
                    lookup=table_lookup(self._server),
                )
            else:
                assert isinstance(payload, ScanSlice)
                yield from read_scan(self._server, connection, payload, self._options, mvcc=self.context.mvcc)
            finished = True
        finally:
            if not finished:
                self._abandon(role)

    # coordinator

    def release(self, token: Token) -> None:
        with self._server.translated("releasing the log"):
            connection = self._connect("coordinator")
            self._nudged = self._slot.advance(connection, parse_lsn(token["lsn"]), last_nudge=self._nudged)

    def metrics(self) -> Mapping[str, float]:
        with self._server.translated("reading metrics"):
            pattern = f"cdc/%/{self.context.feed_id}/snapshot"
            row: Any = self._connect("coordinator").execute(_METRICS, [pattern, self._slot.name]).fetchone()
        if row is None:
            return {}
        retained, behind, snapshot_age = row
        return {
            "retained_bytes": retained or 0.0,
            "unconfirmed_bytes": behind or 0.0,
            "snapshot_age_s": snapshot_age or 0.0,
        }

    def scan_progress(self, token: Token) -> ScanProgress | None:
        scan = token.get("scan")
        return None if scan is None else ScanProgress(done=scan["done"], total=scan["total"], unit="blocks")

    def close(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        for role in list(self._arrow):
            self._abandon(role)

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._server, self.context, self._slot)
        return self._planner

    def _load(self, connection: Connection) -> tuple[Catalog, list[Table]]:
        names = parse_tables(self.context.tables)
        catalog = load_tables(connection, publication=self._slot.name, names=names)
        return catalog, require_tables(connection, catalog, names)

    def _connect(self, role: str) -> Connection:
        connection = self._connections.get(role)
        if connection is None or connection.closed:
            connection = self._connections[role] = self._server.connect(role)
        return connection

    def _connect_arrow(self, role: str) -> Any:
        if role not in self._arrow:
            self._arrow[role] = self._server.connect_arrow(role)
        return self._arrow[role]

    def _abandon(self, role: str) -> None:
        """Close an Arrow connection, whatever it is in the middle of."""
        connection = self._arrow.pop(role, None)
        if connection is not None:
            with suppress(*ClientError):
                connection.adbc_connection.cancel()
            with suppress(*ClientError):
                connection.close()


def _since(start: Position, after: Timestamp) -> Timestamp:
    """Return what rows after *start* must be later than; before the first mark, the clock when the feed started."""
    return after if start.clock is None else max(after, start.clock)
