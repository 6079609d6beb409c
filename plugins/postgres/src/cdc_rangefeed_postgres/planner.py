"""The planner of PostgreSQL: decides where steps end, along the log and through the rounds of the initial scan."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from cdc_core import (
    ContractError,
    RangefeedContext,
    Rescan,
    Slice,
    StepLimit,
    StepPlanner,
    TerminalRangefeedError,
    Timestamp,
    Token,
)
from cdc_rangefeed_postgres.blocks import are_locked, take
from cdc_rangefeed_postgres.boundaries import (
    Compared,
    altering,
    keyless,
    passing_keys,
    with_changes,
    with_schema_changes,
)
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.connection import Connection, KeptConnection, Server
from cdc_rangefeed_postgres.filter_watch import FilterWatch
from cdc_rangefeed_postgres.log_plan import LogPlan, log_bytes, log_end
from cdc_rangefeed_postgres.log_position import flushed_and_clock, newest
from cdc_rangefeed_postgres.members import followed_before, load_members
from cdc_rangefeed_postgres.new_tables import NewTables
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.pacing import Pacing
from cdc_rangefeed_postgres.partitions import with_present_partitions
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.publication_changes import compared
from cdc_rangefeed_postgres.relations import find_relations
from cdc_rangefeed_postgres.rescans import check_rescan, with_rescans
from cdc_rangefeed_postgres.restricted_scan import Estimates
from cdc_rangefeed_postgres.scan_plan import ScanPlan
from cdc_rangefeed_postgres.scan_rounds import ScanRounds
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_use import SlotUse
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.token import PostgresToken, Scan, Snapshot, endpoint_of
from cdc_rangefeed_postgres.truncation import PartitionsTruncatedError, TruncateSearch
from cdc_rangefeed_postgres.types import TypeCatalog
from cdc_rangefeed_postgres.versions import Versions, present_types
from cdc_rangefeed_postgres.watched_tables import load_watched

__all__ = ["PostgresPlanner"]

log = logging.getLogger(__name__)

_IDLE_NS = 1_000_000_000
_FIRST_STEP_BYTES = 8 * 1024 * 1024
_SNAPSHOT_TIMEOUT_S = 1.0
_TELL_AFTER_S = 10.0
_TELL_AGAIN_S = 60.0


class PostgresPlanner(StepPlanner):
    """See `cdc_core.StepPlanner`. Opens one connection, and two more for each snapshot of the initial scan."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._options: PostgresOptions = context.options
        self._server = Server(context)
        self._slot = Slot.of(context)
        self._connection = KeptConnection(self._server, "planner", lock_timeout_s=self._options.lock_timeout)
        self._rounds = ScanRounds(self._server, self._slot, self._options)
        self._estimates = Estimates(context.restriction)
        self._new_tables = NewTables(context, self._slot, Primary(self._server))
        self._filters = FilterWatch(self._slot.publication)
        self._truncated = TruncateSearch(self._slot)
        self._pacing = Pacing(self._slot.name)
        self._use = SlotUse(self._slot)
        self._catalog: Catalog | None = None
        self._types = TypeCatalog()
        self._plan: LogPlan | ScanPlan | None = None
        self._first_log_step = True
        self._commit_times: bool | None = None
        self._resolved = Timestamp()
        """Where the step that is planned begins."""
        self._sure = True
        """Whether the catalog shows every change before the end of the log."""
        self._planned_at = time.monotonic()
        self._tell_at: float | None = None
        self._compared: Compared | None = None
        self._ending: tuple[int, TerminalRangefeedError] | None = None
        """Where the log ends for a changefeed that ends at a schema boundary, and with which error."""

    def now(self) -> Timestamp:
        if self.context.saved is not None:
            self._server.use(endpoint_of(self.context.saved))
        with self._server.translated("reading the clock"):
            row: Any = self._connection.open().execute(CLOCK_US).fetchone()
            return Timestamp(row[0] * 1000 + 999)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        token = self._at(start)
        with self._server.translated("planning a step"):
            connection = self._connection.open()
            self._use.keep(connection)
            end = self._advance(connection, token, after=_latest(token, after), limit=limit)
            if end is not None:
                assert self._plan is not None
                end = end.following(token)
                self._plan = replace(self._plan, end=end)
                self._planned_at = time.monotonic()
                if end.lsn > token.lsn:
                    self._pacing.planned(connection)
        return start if end is None else end.to_json()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        plan = self._plan
        if plan is None or plan.end != PostgresToken.from_json(end):
            raise ContractError("engine: slices() must directly follow the advance() that planned the step")
        if isinstance(plan, LogPlan):
            return plan.slices(after=_latest(PostgresToken.from_json(start), after))
        return plan.slices()

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        first, last = self._at(start), PostgresToken.from_json(end)
        if first.scan is not None or last.scan is not None or first.endpoint != last.endpoint:
            return None
        # As in every first step of an attempt, the log is searched for the shapes that it announces. When they and the
        # catalog agree with what the earlier attempt found, the slices are the same.
        with self._server.translated("planning a step again"):
            connection = self._connection.open()
            if flushed_and_clock(connection)[0] < last.lsn:  # a standby that was promoted, or replays its log
                return None
            self._refresh(connection, first)
            clock = last.clock
            again = self._along_log(connection, replace(first, clock=clock), last.lsn, until=clock, mark=clock)
        if again.tables != last.tables or again.scan is not None:
            return None
        assert isinstance(self._plan, LogPlan)
        self._plan = replace(self._plan, end=last)
        return self.slices(start, end, after=after)

    def check_rescan(self, rescan: Rescan) -> None:
        self._server.use(endpoint_of(self.context.saved))
        connection = self._server.connect_checked()
        with closing(connection), self._server.translated("checking a rescan"):
            known, selection = followed_before(self.context), self._new_tables.selection
            catalog = load_members(connection, self._slot.publication, selection, known, diff=self.context.diff)
            check_rescan(connection, catalog, rescan, lock_timeout_s=self._options.lock_timeout)

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        token = self._at(start)
        with self._server.translated("planning a rescan"):
            connection = self._connection.open()
            if self._altered(connection, token) is not None:
                return None
            return with_rescans(connection, self._refresh(connection, token), token, rescans).to_json()

    def close(self) -> None:
        self._rounds.close()
        self._connection.close()

    def _at(self, start: Token) -> PostgresToken:
        """Return *start*, and connect to the endpoint that it names."""
        token = PostgresToken.from_json(start)
        self._server.use(token.endpoint)
        return token

    def _advance(
        self, connection: Connection, start: PostgresToken, *, after: Timestamp, limit: StepLimit
    ) -> PostgresToken | None:
        """Return the end of the next step, None when there is nothing to do yet."""
        self._resolved = start.clock or after
        flushed, clock = flushed_and_clock(connection)
        clock = max(clock, Timestamp(after.wall + 1000))
        if start.scan is None and 0 < flushed - start.lsn < log_bytes(limit) and self._pacing.too_early:
            return None
        if flushed > start.lsn or start.scan is not None or start.clock is None:
            # The catalog is read after the end of the log, so it is at least as new, unless it is being altered now.
            altered = self._altered(connection, start)
            catalog = self._refresh(connection, start)
            waits_for = altered or keyless(catalog)
            self._tell(waits_for)
            if waits_for is not None and flushed <= start.lsn and start.scan is None:
                return None
            self._sure = waits_for is None
            # Noted before the blocks of a backfill are counted: a row that is written to later blocks is then read from
            # the log with the new key.
            start = self._noted(connection, start, catalog)
            try:
                start = self._filters.compared(connection, catalog, start)
                removed = self._options.removed_partitions
                start = with_schema_changes(
                    connection,
                    catalog,
                    start,
                    self.context.schema_changes,
                    resolved=self._resolved,
                    truncate=self._options.truncate,
                    removed=removed,
                    compared=self._compared,
                    # Without a clock, the catalog may not have shown what ended just there.
                    search=partial(self._truncated.truncated, connection, after=start.lsn - (start.clock is None)),
                )
                start = with_present_partitions(connection, catalog, start, removed=removed)
                near_end = flushed - start.lsn <= log_bytes(limit)
                self._sure = self._new_tables.poll(connection, catalog, start, near_end=near_end) and self._sure
            except TerminalRangefeedError as error:
                self._ending = self._ending or (flushed, error)
                if isinstance(error, PartitionsTruncatedError):
                    # The next attempt finds no trace of it in the log, which is delivered up to here.
                    start = start.with_truncated(error.partitions)
                return self._before_the_end(connection, start, limit, *self._ending)
            self._compared = Compared.of(catalog, start)
        elif max(clock.wall - start.clock.wall, (time.monotonic() - self._planned_at) * 1e9) < _IDLE_NS:
            return None  # this process's clock too: the server's may have gone back
        if start.scan is not None:
            return self._through_scan(connection, start, start.scan, flushed, after=after, limit=limit)
        self._rounds.close()
        lsn = min(flushed, log_end(start, limit))
        if self._first_log_step:  # its log is searched before it is read
            lsn = min(lsn, start.lsn + _FIRST_STEP_BYTES)
        lsn = max(start.lsn, lsn)
        reached = clock if lsn >= flushed and self._sure else None
        return self._along_log(connection, replace(start, clock=reached), lsn, until=reached, mark=reached)

    def _altered(self, connection: Connection, start: PostgresToken) -> str | None:
        return altering(connection, start, self._catalog.composites if self._catalog else ())

    def _tell(self, waits_for: str | None) -> None:
        """Say from time to time what resolved marks wait for, when they wait for long."""
        now = time.monotonic()
        if waits_for is None:
            self._tell_at = None
        elif self._tell_at is None:
            self._tell_at = now + _TELL_AFTER_S
        elif now >= self._tell_at:
            self._tell_at = now + _TELL_AGAIN_S
            log.warning("nothing is resolved while %s", waits_for)

    def _before_the_end(
        self, connection: Connection, start: PostgresToken, limit: StepLimit, last: int, error: TerminalRangefeedError
    ) -> PostgresToken:
        """Deliver the log before the schema boundary at which the changefeed ends with *error*, unresolved.

        The log does not say where the boundary is. *last*, the end of the log at which it was found, lies behind it.
        Raises: *error* when that is reached, or when a scan is not complete.
        """
        if start.scan is not None or start.lsn >= last:
            raise error
        self._sure = False
        end = min(last, log_end(start, limit))
        return self._along_log(connection, replace(start, clock=None), end, until=None, mark=None)

    def _refresh(self, connection: Connection, start: PostgresToken) -> Catalog:
        """Read the catalog again, and types before it: what is altered in between is then found before it is used."""
        known, selection = self._catalog, self._new_tables.selection
        while True:
            types = self._types if known is None else present_types(connection, known)
            catalog = load_watched(connection, self._slot, start, selection, diff=self.context.diff, known=known)
            if catalog is known:
                self._types, self._catalog = types.following(start.types), catalog
                return catalog
            known = catalog

    def _noted(self, connection: Connection, start: PostgresToken, catalog: Catalog) -> PostgresToken:
        """Return *start* with *catalog*. If it is a new one, tables have its shapes in the log from now on."""
        if catalog.fingerprint == start.catalog:
            return start
        settled = max(start.settled, newest(connection))
        return compared(replace(start, catalog=catalog.fingerprint, settled=settled), catalog)

    # along the log

    def _along_log(
        self, connection: Connection, start: PostgresToken, end: int, *, until: Timestamp | None, mark: Timestamp | None
    ) -> PostgresToken:
        """Plan a step along the log up to *end*, and return its end."""
        catalog = self._catalog or self._refresh(connection, start)
        start = self._noted(connection, start, catalog)
        settled = start.lsn >= start.settled
        if end > start.lsn and (not settled or self._first_log_step):
            found = find_relations(self._server, connection, self._slot, start=start.lsn, end=end)
            versions = Versions.of_log(
                connection, catalog, start.tables, found, settled=settled, types=self._types, past=start.types
            )
            self._first_log_step = False
        else:
            versions = Versions.of_catalog(connection, catalog, start.tables, self._types)
        types = self._types.types if end >= start.settled else {**self._types.types, **start.types}
        again = start.again if end < start.again else 0
        token = replace(start, lsn=end, tables=versions.states, types=types, again=again)
        if versions.passing:
            changes, rules = passing_keys(versions.passing), self.context.schema_changes
            token = with_changes(connection, catalog, token, rules, changes, resolved=self._resolved)
            self._sure, token = False, replace(token, clock=None)
        self._plan = LogPlan(
            slot=self._slot,
            start=start,
            end=token,
            catalog=catalog,
            versions=versions,
            until=until,
            mark=mark,
            resolved=start.scan is None and self._sure and not token.again,
        )
        return token

    # through the initial scan

    def _through_scan(
        self,
        connection: Connection,
        start: PostgresToken,
        scan: Scan,
        flushed: int,
        *,
        after: Timestamp,
        limit: StepLimit,
    ) -> PostgresToken | None:
        """Return the end of the next step of the initial scan, None when it must wait.

        While a table that is to be read is locked, reading would wait, so steps follow the log.

        Without a snapshot, steps follow the log up to *flushed*, which was read before the wait for a snapshot. So a
        snapshot that comes during this wait is hardly ever older than rows that were emitted.
        """
        rounds = self._rounds
        held = scan.snapshot if scan.snapshot is not None and rounds.holds(scan.snapshot) else None
        if held is not None and start.lsn < held.lsn:
            return self._towards(connection, start, held, limit)
        assert self._catalog is not None
        if are_locked(connection, [part.oid for part in scan.parts]):
            rounds.drop()
            return self._without_snapshot(connection, start, scan, flushed, limit)
        if held is None or not rounds.can_read(connection, scan, self._catalog):
            rounds.drop()
        elif not rounds.over():
            return self._scan_step(connection, start, scan, limit)
        if not rounds.held and flushed - start.lsn > log_bytes(limit):
            # A snapshot would become old while steps follow the log up to it.
            return self._without_snapshot(connection, start, scan, flushed, limit)
        following = rounds.next(
            connection,
            scan,
            lambda: self._refresh(connection, start),
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
    ) -> PostgresToken | None:
        end = min(flushed, log_end(start, limit))
        if end <= start.lsn:
            return None
        start = replace(start, scan=replace(scan, snapshot=None), clock=None)
        return self._along_log(connection, start, end, until=None, mark=None)

    def _begin_round(
        self, connection: Connection, start: PostgresToken, scan: Scan, *, after: Timestamp, limit: StepLimit
    ) -> PostgresToken:
        if not scan.parts:
            return self._along_log(connection, replace(start, scan=None), start.lsn, until=None, mark=after)
        assert scan.snapshot is not None
        # The step up to the snapshot is saved before a row is read, also where the log holds nothing. So an attempt
        # that repeats the scan begins above all rows that this one may have emitted, by time and by file name.
        snapshot = replace(scan.snapshot, at=max(scan.snapshot.at, Timestamp(after.wall + 1000)))
        start = replace(start, scan=replace(scan, snapshot=snapshot), clock=None)
        return self._towards(connection, start, snapshot, limit)

    def _towards(
        self, connection: Connection, start: PostgresToken, snapshot: Snapshot, limit: StepLimit
    ) -> PostgresToken:
        """Plan a step along the log towards the snapshot's consistent point, never beyond it."""
        end = min(snapshot.lsn, log_end(start, limit))
        mark = snapshot.at if end == snapshot.lsn else None
        return self._along_log(connection, start, end, until=snapshot.at, mark=mark)

    def _scan_step(self, connection: Connection, start: PostgresToken, scan: Scan, limit: StepLimit) -> PostgresToken:
        assert self._catalog is not None
        assert scan.snapshot is not None
        self._rounds.use()
        slice_bytes, parallelism = self._options.scan_chunk_size, self.context.parallelism
        versions = Versions.of_catalog(connection, self._catalog, start.tables, self._types)
        densities = self._estimates.delivered(connection, scan, self._rounds.densities, self._catalog, versions)
        left = take(scan, densities, rows=limit.rows, bytes_=min(limit.bytes, slice_bytes * parallelism))
        end = replace(start, scan=left, clock=None, tables=versions.states)
        self._plan = ScanPlan(
            start=scan,
            end=end,
            snapshot=scan.snapshot,
            catalog=self._catalog,
            versions=versions,
            densities=densities,
            commit_times=self.context.mvcc and self._has_commit_times(connection),
            parallelism=parallelism,
            slice_bytes=slice_bytes,
        )
        if left is None:
            log.info("scan: reading the last of %d blocks in round %d", scan.total, scan.round)
        return end

    def _has_commit_times(self, connection: Connection) -> bool:
        if self._commit_times is None:
            row: Any = connection.execute("SELECT current_setting('track_commit_timestamp') = 'on'").fetchone()
            self._commit_times = bool(row[0])
        return self._commit_times


def _latest(start: PostgresToken, after: Timestamp) -> Timestamp:
    """Return the timestamp that rows after *start* must exceed: before the first mark, the clock at the start."""
    return after if start.clock is None else max(after, start.clock)
