"""Decides where steps end: along the log, and through the rounds of the initial scan."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from cdc_core import ConfigError, ContractError, RangefeedContext, Slice, StepLimit, TerminalRangefeedError, Timestamp
from cdc_rangefeed_postgres.catalog import Catalog, load_tables
from cdc_rangefeed_postgres.checks import check_key
from cdc_rangefeed_postgres.connection import Connection, Server, set_lock_timeout
from cdc_rangefeed_postgres.log import LogSlice, find_relations
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.partitions import with_new_partitions
from cdc_rangefeed_postgres.position import Position, Scan, Snapshot, parse_lsn
from cdc_rangefeed_postgres.rounds import Rounds
from cdc_rangefeed_postgres.scan import ScanSlice, pieces_between, split, take
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.types import binary_safe
from cdc_rangefeed_postgres.versions import Versions

__all__ = ["Planner", "load_watched"]

log = logging.getLogger(__name__)

_IDLE_NS = 1_000_000_000
_FIRST_STEP_BYTES = 8 * 1024 * 1024
_LEAST_ROW_BYTES = 64
_PATIENCE_S = 1.0

_NOW = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
"""
_NEWEST = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""


@dataclass(frozen=True, kw_only=True)
class _LogPlan:
    """What the slice of a step along the log is made of."""

    start: Position
    end: Position
    versions: Versions
    until: Timestamp | None
    mark: Timestamp | None


@dataclass(frozen=True, kw_only=True)
class _ScanPlan:
    """What the slices of a step of the initial scan are made of."""

    start: Scan
    end: Position
    versions: Versions


class Planner:
    """Plans the steps of one changefeed, on one connection. Lives in the planner's process."""

    def __init__(self, server: Server, context: RangefeedContext, slot: Slot) -> None:
        self._server = server
        self._context = context
        self._options: PostgresOptions = context.options
        self._slot = slot
        self._rounds = Rounds(server, context, slot)
        self._connection: Connection | None = None
        self._catalog: Catalog | None = None
        self._plan: _LogPlan | _ScanPlan | None = None
        self._first_log_step = True
        self._commit_times: bool | None = None

    def advance(self, start: Position, *, after: Timestamp, limit: StepLimit) -> Position:
        """See Rangefeed.advance."""
        with self._server.translated("planning a step"):
            connection = self._connect()
            flushed, clock = self._now(connection, after)
            if flushed > start.lsn or start.scan is not None:
                # After the end of the log was read, so that the catalog is not older than it.
                position = with_new_partitions(connection, self._refresh(connection, start), start)
            elif start.clock is not None and clock.wall - start.clock.wall < _IDLE_NS:
                return start
            else:
                position = start
            if position.scan is not None:
                end = self._through_scan(connection, position, position.scan, flushed, after=after, limit=limit)
                return start if end is None else end
            self._rounds.close()
            bound = _log_bytes(limit)
            if self._first_log_step:  # its log is searched before it is read
                bound = min(bound, _FIRST_STEP_BYTES)
            lsn = max(start.lsn, min(flushed, start.lsn + bound))
            reached = clock if lsn >= flushed else None
            return self._along_log(connection, replace(position, clock=reached), lsn, until=reached, mark=reached)

    def slices(self, end: Position, *, after: Timestamp) -> list[Slice]:
        """Return the slices of the step that `advance` planned last, which ends at *end*."""
        plan = self._plan
        if plan is None or plan.end != end or self._catalog is None:
            raise ContractError("engine: slices() must directly follow the advance() that planned the step")
        if isinstance(plan, _LogPlan):
            return [self._log_slice(plan, self._catalog, after)]
        with self._server.translated("planning a step"):
            return self._scan_slices(plan, self._catalog)

    def repeat(self, start: Position, end: Position, *, after: Timestamp) -> list[Slice] | None:
        """Return the slices of a step along the log that an earlier run has planned, None when it is no such step.

        The log is searched for what it announces, as always at the beginning of a run; as long as that and the catalog
        agree with what the earlier run had found, the slices are the same.
        """
        if start.scan is not None or end.scan is not None:
            return None
        with self._server.translated("planning a step again"):
            connection = self._connect()
            self._refresh(connection, start)
            reached = end.clock
            again = self._along_log(connection, replace(start, clock=reached), end.lsn, until=reached, mark=reached)
        if again.tables != end.tables or self._plan is None:
            return None
        self._plan = replace(self._plan, end=end)
        return self.slices(end, after=after)

    def close(self) -> None:
        self._rounds.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect("planner")
            set_lock_timeout(self._connection, self._options.lock_timeout)
        return self._connection

    def _now(self, connection: Connection, after: Timestamp) -> tuple[int, Timestamp]:
        """Return the end of the flushed log, and a clock reading that nothing committed before it exceeds."""
        row: Any = connection.execute(_NOW).fetchone()
        return parse_lsn(row[0]), max(Timestamp(row[1] * 1000 + 999), Timestamp(after.wall + 1000))

    def _refresh(self, connection: Connection, start: Position) -> Catalog:
        """Read the catalog again."""
        self._catalog = load_watched(connection, self._slot, start, diff=self._context.diff)
        return self._catalog

    # along the log

    def _along_log(
        self, connection: Connection, start: Position, end: int, *, until: Timestamp | None, mark: Timestamp | None
    ) -> Position:
        """Return the position of a step along the log that ends at *end*."""
        catalog = self._catalog or self._refresh(connection, start)
        settled = start.settled
        if catalog.fingerprint != start.catalog:
            row: Any = connection.execute(_NEWEST).fetchone()
            settled = max(settled, parse_lsn(row[0]))
        if end > start.lsn and (start.lsn < settled or self._first_log_step):
            found = find_relations(connection, self._slot, start=start.lsn, end=end)
            versions = Versions.of_log(connection, catalog, start.tables, found)
            self._first_log_step = False
        else:
            versions = Versions.of_catalog(connection, catalog, start.tables)
        position = replace(start, lsn=end, tables=versions.states, catalog=catalog.fingerprint, settled=settled)
        self._plan = _LogPlan(start=start, end=position, versions=versions, until=until, mark=mark)
        return position

    def _log_slice(self, plan: _LogPlan, catalog: Catalog, after: Timestamp) -> Slice:
        versions = {catalog.tables[name].oid: found for name, found in plan.versions.lists.items() if found}
        payload = LogSlice(
            slot=self._slot,
            start=plan.start.lsn,
            end=plan.end.lsn,
            after=after,
            until=plan.until,
            mark=plan.mark,
            resolved=plan.start.scan is None,
            binary=all(binary_safe(version.columns, version.types) for found in versions.values() for version in found),
            versions=versions,
            tables=tuple(table.name.full for table in catalog.tables.values()),
        )
        return Slice(lower=after.next(), payload=payload)

    # through the initial scan

    def _through_scan(
        self, connection: Connection, start: Position, scan: Scan, flushed: int, *, after: Timestamp, limit: StepLimit
    ) -> Position | None:
        """Return where the next step of the initial scan ends, None when it must wait.

        While no snapshot is to be had, the log is followed up to *flushed* only, read before waiting for the snapshot:
        so a snapshot that comes in the meantime is hardly ever older than what was emitted.
        """
        rounds = self._rounds
        held = scan.snapshot if scan.snapshot is not None and rounds.holds(scan.snapshot) else None
        if held is not None and start.lsn < held.lsn:
            return self._towards(connection, start, held, limit)
        assert self._catalog is not None
        if held is None or not rounds.still_fit(connection, scan, self._catalog):
            rounds.drop()
        elif not rounds.over():
            return self._scan_step(connection, start, scan, limit)
        if not rounds.held and flushed - start.lsn > _log_bytes(limit):
            # A snapshot would grow old while the log is followed up to it.
            return self._without_snapshot(connection, start, scan, flushed, limit)
        following = rounds.next(
            connection,
            scan,
            lambda: self._refresh(connection, start),
            wait_s=0.0 if rounds.held else _PATIENCE_S,
            not_before=start.lsn,
        )
        if following is not None:
            return self._begin_round(connection, start, following, after=after, limit=limit)
        if rounds.held:
            return self._scan_step(connection, start, scan, limit)
        return self._without_snapshot(connection, start, scan, flushed, limit)

    def _without_snapshot(
        self, connection: Connection, start: Position, scan: Scan, flushed: int, limit: StepLimit
    ) -> Position | None:
        end = min(flushed, start.lsn + _log_bytes(limit))
        if end <= start.lsn:
            return None
        start = replace(start, scan=replace(scan, snapshot=None), clock=None)
        return self._along_log(connection, start, end, until=None, mark=None)

    def _begin_round(
        self, connection: Connection, start: Position, scan: Scan, *, after: Timestamp, limit: StepLimit
    ) -> Position:
        if not scan.parts:
            return self._along_log(connection, replace(start, scan=None), start.lsn, until=None, mark=after)
        assert scan.snapshot is not None
        snapshot = replace(scan.snapshot, at=max(scan.snapshot.at, Timestamp(after.wall + 1000)))
        scan = replace(scan, snapshot=snapshot)
        start = replace(start, scan=scan, clock=None)
        if start.lsn < snapshot.lsn:
            return self._towards(connection, start, snapshot, limit)
        return self._scan_step(connection, start, scan, limit)

    def _towards(self, connection: Connection, start: Position, snapshot: Snapshot, limit: StepLimit) -> Position:
        """Return the end of a step of the log towards the snapshot's consistent point, and never beyond it."""
        end = min(snapshot.lsn, start.lsn + _log_bytes(limit))
        mark = snapshot.at if end == snapshot.lsn else None
        return self._along_log(connection, start, end, until=snapshot.at, mark=mark)

    def _scan_step(self, connection: Connection, start: Position, scan: Scan, limit: StepLimit) -> Position:
        assert self._catalog is not None
        self._rounds.use()
        bytes_ = min(limit.bytes, self._options.scan_chunk_size * self._context.parallelism)
        left = take(scan, self._rounds.densities, rows=limit.rows, bytes_=bytes_)
        versions = Versions.of_catalog(connection, self._catalog, start.tables)
        end = replace(start, scan=left, clock=None, tables=versions.states)
        self._plan = _ScanPlan(start=scan, end=end, versions=versions)
        if left is None:
            log.info("initial scan: the last of %d blocks are read in round %d", scan.total, scan.round)
        return end

    def _scan_slices(self, plan: _ScanPlan, catalog: Catalog) -> list[Slice]:
        snapshot = plan.start.snapshot
        assert snapshot is not None
        leaves = {leaf.oid: leaf for table in catalog.tables.values() for leaf in table.leaves}
        pieces = pieces_between(plan.start, plan.end.scan, leaves)
        shares = split(
            pieces,
            self._rounds.densities,
            count=self._context.parallelism,
            bytes_=self._options.scan_chunk_size,
        )
        return [
            Slice(
                lower=snapshot.at,
                payload=ScanSlice(
                    snapshot=snapshot.id,
                    at=snapshot.at,
                    pieces=tuple(share),
                    versions={piece.table: plan.versions.lists[piece.table][0] for piece in share},
                    commit_times=self._context.mvcc and self._has_commit_times(),
                ),
            )
            for share in shares
        ]

    def _has_commit_times(self) -> bool:
        if self._commit_times is None:
            row: Any = self._connect().execute("SELECT current_setting('track_commit_timestamp') = 'on'").fetchone()
            self._commit_times = bool(row[0])
        return self._commit_times


def load_watched(connection: Connection, slot: Slot, position: Position, *, diff: bool) -> Catalog:
    """Return the catalog of the tables that *position* knows.

    Raises: TerminalRangefeedError when one of them is not what the changefeed began with, or can no longer be followed.
    """
    states = position.tables
    catalog = load_tables(connection, publication=slot.name, oids=[state.oid for state in states.values()])
    anew = "start a changefeed under another name, with an initial scan"
    for name, state in states.items():
        table = catalog.by_oid.get(state.oid)
        if table is None:
            raise TerminalRangefeedError(
                f"table {name} was dropped: {anew}, or remove the table from the list of another"
            )
        if table.name.qualified != name:
            raise TerminalRangefeedError(f"table {name} was renamed to {table.name}: rename it back, or {anew}")
        if not table.published:
            raise TerminalRangefeedError(
                f"table {name} is no longer in publication {slot.name}, so changes of it may be lost: {anew}"
            )
        if table.key != state.key:
            raise TerminalRangefeedError(
                f"the key of table {name} changed from ({', '.join(state.key)}) to ({', '.join(table.key)}), so its "
                f"rows can no longer be told apart as before: undo that, or {anew}"
            )
        try:
            check_key(table, diff=diff)
        except ConfigError as error:
            raise TerminalRangefeedError(str(error)) from None
    return catalog


def _log_bytes(limit: StepLimit) -> int:
    """Return how much log a step may hold; the bound on rows is approximate, by the least that a row takes."""
    return max(1, min(limit.bytes, limit.rows * _LEAST_ROW_BYTES))
