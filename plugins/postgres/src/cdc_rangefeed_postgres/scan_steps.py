"""Steps through the initial scan and the scans of tables that are added or changed: which one comes next."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Protocol

from cdc_core import RangefeedContext, StepLimit, Timestamp
from cdc_rangefeed_postgres.blocks import are_locked, take
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.restricted_scan import Estimates
from cdc_rangefeed_postgres.scan_rounds import ScanRounds
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.step_plans import LogPlan, ScanPlan, log_bytes, log_end
from cdc_rangefeed_postgres.token import PostgresToken, Scan, Snapshot
from cdc_rangefeed_postgres.watched_catalog import WatchedCatalog

log = logging.getLogger(__name__)

_SNAPSHOT_TIMEOUT_S = 1.0


class AlongLog(Protocol):
    """Plans a step along the log up to *end*, whose rows are at most from *until*."""

    def __call__(
        self, connection: Connection, start: PostgresToken, end: int, *, until: Timestamp | None, mark: Timestamp | None
    ) -> LogPlan: ...


class ScanSteps:
    """Plans the steps of a scan. Holds a snapshot while it lasts; *along_log* plans the steps up to a snapshot."""

    def __init__(
        self, context: RangefeedContext, server: Server, slot: Slot, watched: WatchedCatalog, along_log: AlongLog
    ) -> None:
        options: PostgresOptions = context.options
        self._rounds = ScanRounds(server, slot, options)
        self._estimates = Estimates(context.restriction)
        self._watched = watched
        self._along_log = along_log
        self._slice_bytes, self._parallelism = options.scan_chunk_size, context.parallelism
        self._mvcc = context.mvcc
        self._commit_times: bool | None = None

    def close(self) -> None:
        """Release the snapshot, if one is held. May be called at any time."""
        self._rounds.close()

    def following(
        self,
        connection: Connection,
        start: PostgresToken,
        scan: Scan,
        flushed: int,
        *,
        after: Timestamp,
        limit: StepLimit,
    ) -> LogPlan | ScanPlan | None:
        """Return the next step of the initial scan, None when it must wait.

        While a table that is to be read is locked, reading would wait, so steps follow the log.

        Without a snapshot, steps follow the log up to *flushed*, which was read before the wait for a snapshot. So a
        snapshot that comes during this wait is hardly ever older than rows that were emitted.
        """
        rounds = self._rounds
        held = scan.snapshot if scan.snapshot is not None and rounds.holds(scan.snapshot) else None
        if held is not None and start.lsn < held.lsn:
            return self._towards(connection, start, held, limit)
        if are_locked(connection, [part.oid for part in scan.parts]):
            rounds.drop()
            return self._without_snapshot(connection, start, scan, flushed, limit)
        if held is None or not rounds.can_read(connection, scan, self._watched.catalog):
            rounds.drop()
        elif not rounds.over():
            return self._scan_step(connection, start, scan, limit)
        if not rounds.held and flushed - start.lsn > log_bytes(limit):
            # A snapshot would become old while steps follow the log up to it.
            return self._without_snapshot(connection, start, scan, flushed, limit)
        following = rounds.next(
            connection,
            scan,
            lambda: self._watched.refresh(connection, start),
            wait_s=0.0 if rounds.held else _SNAPSHOT_TIMEOUT_S,
            not_before=start.lsn,
        )
        if following is not None:
            return self._begin_round(connection, start, following, after=after, limit=limit)
        if rounds.held:
            return self._scan_step(connection, start, scan, limit)
        return self._without_snapshot(connection, start, scan, flushed, limit)

    def _without_snapshot(
        self, connection: Connection, start: PostgresToken, scan: Scan, flushed: int, limit: StepLimit
    ) -> LogPlan | None:
        end = min(flushed, log_end(start, limit))
        if end <= start.lsn:
            return None
        start = replace(start, scan=replace(scan, snapshot=None), clock=None)
        return self._along_log(connection, start, end, until=None, mark=None)

    def _begin_round(
        self, connection: Connection, start: PostgresToken, scan: Scan, *, after: Timestamp, limit: StepLimit
    ) -> LogPlan:
        if not scan.parts:
            return self._along_log(connection, replace(start, scan=None), start.lsn, until=None, mark=after)
        assert scan.snapshot is not None
        # The step up to the snapshot is saved before a row is read, also where the log holds nothing. So an attempt
        # that repeats the scan begins above all rows that this one may have emitted, by time and by file name.
        snapshot = replace(scan.snapshot, at=max(scan.snapshot.at, Timestamp(after.wall + 1000)))
        start = replace(start, scan=replace(scan, snapshot=snapshot), clock=None)
        return self._towards(connection, start, snapshot, limit)

    def _towards(self, connection: Connection, start: PostgresToken, snapshot: Snapshot, limit: StepLimit) -> LogPlan:
        """Plan a step along the log towards the snapshot's consistent point, never beyond it."""
        end = min(snapshot.lsn, log_end(start, limit))
        mark = snapshot.at if end == snapshot.lsn else None
        return self._along_log(connection, start, end, until=snapshot.at, mark=mark)

    def _scan_step(self, connection: Connection, start: PostgresToken, scan: Scan, limit: StepLimit) -> ScanPlan:
        assert scan.snapshot is not None
        self._rounds.use()
        catalog = self._watched.catalog
        slice_bytes, parallelism = self._slice_bytes, self._parallelism
        versions = self._watched.versions(connection, start.tables)
        densities = self._estimates.delivered(connection, scan, self._rounds.densities, catalog, versions)
        left = take(scan, densities, rows=limit.rows, bytes_=min(limit.bytes, slice_bytes * parallelism))
        end = replace(start, scan=left, clock=None, tables=versions.states)
        if left is None:
            log.info("scan: reading the last of %d blocks in round %d", scan.total, scan.round)
        return ScanPlan(
            start=scan,
            end=end,
            snapshot=scan.snapshot,
            catalog=catalog,
            versions=versions,
            densities=densities,
            commit_times=self._mvcc and self._has_commit_times(connection),
            parallelism=parallelism,
            slice_bytes=slice_bytes,
        )

    def _has_commit_times(self, connection: Connection) -> bool:
        if self._commit_times is None:
            row: Any = connection.execute("SELECT current_setting('track_commit_timestamp') = 'on'").fetchone()
            self._commit_times = bool(row[0])
        return self._commit_times
