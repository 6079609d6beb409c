"""The planner of PostgreSQL: decides where steps end along the log, and when they go through a scan."""

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
from cdc_rangefeed_postgres.boundaries import (
    Compared,
    keyless,
    passing_keys,
    with_changes,
    with_schema_changes,
)
from cdc_rangefeed_postgres.connection import Connection, KeptConnection, Server
from cdc_rangefeed_postgres.filter_watch import FilterWatch
from cdc_rangefeed_postgres.kept_log import KeptLog
from cdc_rangefeed_postgres.log_ahead import LogAhead
from cdc_rangefeed_postgres.lsn import flushed_and_clock
from cdc_rangefeed_postgres.members import followed_before, load_members
from cdc_rangefeed_postgres.new_tables import NewTables
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.pacing import Pacing
from cdc_rangefeed_postgres.partitions import with_passing_partitions, with_present_partitions
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.relations import Relation, find_relations
from cdc_rangefeed_postgres.rescans import check_rescan, with_rescans
from cdc_rangefeed_postgres.scan_steps import ScanSteps
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_use import SlotUse
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.step_plans import LogPlan, ScanPlan, log_bytes, log_end
from cdc_rangefeed_postgres.timeline import require_same, warn_of_step
from cdc_rangefeed_postgres.token import PostgresToken, endpoint_of
from cdc_rangefeed_postgres.truncation import PartitionsTruncatedError, TruncateSearch
from cdc_rangefeed_postgres.versions import Versions
from cdc_rangefeed_postgres.watched_catalog import WatchedCatalog, noted

log = logging.getLogger(__name__)

_IDLE_NS = 1_000_000_000
_FIRST_STEP_BYTES = 8 * 1024 * 1024
_TELL_AFTER_S = 10.0
_TELL_AGAIN_S = 60.0


class PostgresPlanner(StepPlanner):
    """See `cdc_core.StepPlanner`. Opens one connection, and two more for each snapshot of the initial scan.

    While an open transaction makes each step decode much log again, it keeps one more, see `KeptLog`; and one while
    steps are large, see `LogAhead`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._options: PostgresOptions = context.options
        self._server = Server(context)
        self._slot = Slot.of(context)
        self._connection = KeptConnection(self._server, "planner", lock_timeout_s=self._options.lock_timeout)
        self._new_tables = NewTables(context, self._slot, Primary(self._server))
        self._watched = WatchedCatalog(self._slot, self._new_tables, diff=context.diff)
        self._scan_steps = ScanSteps(context, self._server, self._slot, self._watched, self._along_log)
        self._filters = FilterWatch(self._slot.publication)
        self._truncated = TruncateSearch(self._slot)
        self._kept = KeptLog(self._server, self._slot)
        self._ahead = LogAhead(self._server, self._slot, self._options)
        self._pacing = Pacing(self._kept)
        self._use = SlotUse(self._slot)
        self._plan: LogPlan | ScanPlan | None = None
        self._first_log_step = True
        self._resolved = Timestamp()
        """Where the step that is planned begins."""
        self._same_server: Connection | None = None
        """The connection that is known to be to the server on which the attempt began."""
        self._timeline = 0
        """That server's timeline; 0 when it does not tell."""
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
            plan = self._advance(connection, token, after=_latest(token, after), limit=limit)
            if plan is None:
                return start
            end = plan.end.following(token)
            self._plan = replace(plan, end=end)
            self._planned_at = time.monotonic()
            if end.lsn > token.lsn:
                self._kept.poll(connection, token.lsn, None if end.clock is None else end.lsn)
                self._pacing.planned(token.lsn, end.lsn)
        return end.to_json()

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        plan = self._plan
        if plan is None or plan.end != PostgresToken.from_json(end):
            raise ContractError("engine: slices() must directly follow the advance() that planned the step")
        if isinstance(plan, LogPlan):
            found = plan.slices(after=_latest(PostgresToken.from_json(start), after))
            found = [self._kept.named(slice_) for slice_ in found]
            return [
                each if each.payload.session else self._ahead.named(each, following=plan.following) for each in found
            ]
        return plan.slices()

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:
        first, last = self._at(start), PostgresToken.from_json(end)
        if first.scan is not None or last.scan is not None or first.endpoint != last.endpoint:
            return None
        if last.timeline not in (0, first.timeline):  # a server that was promoted
            with self._server.translated("reading the timeline"):
                warn_of_step(self._server, last, first.timeline)
            return None
        # As in every first step of an attempt, the log is searched for the shapes that it announces. When they and the
        # catalog agree with what the earlier attempt found, the slices are the same.
        with self._server.translated("planning a step again"):
            connection = self._connection.open()
            if flushed_and_clock(connection)[0] < last.lsn:  # a standby that was promoted, or replays its log
                return None
            self._watched.refresh(connection, first)
            clock = last.clock
            again = self._along_log(connection, replace(first, clock=clock), last.lsn, until=clock, mark=clock)
        if again.end.tables != last.tables or again.end.scan is not None:
            return None
        self._plan = replace(again, end=last)
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
            if self._watched.altered(connection, token) is not None:
                return None
            return with_rescans(connection, self._watched.refresh(connection, token), token, rescans).to_json()

    def close(self) -> None:
        self._scan_steps.close()
        self._kept.close()
        self._ahead.close()
        self._connection.close()

    def _at(self, start: Token) -> PostgresToken:
        """Return *start*, and connect to the endpoint that it names."""
        token = PostgresToken.from_json(start)
        self._server.use(token.endpoint)
        return token

    def _advance(
        self, connection: Connection, start: PostgresToken, *, after: Timestamp, limit: StepLimit
    ) -> LogPlan | ScanPlan | None:
        """Return the next step, None when there is nothing to do yet."""
        self._resolved = start.clock or after
        if connection is not self._same_server:
            self._timeline = require_same(connection, start)
            self._same_server = connection
        flushed, clock = flushed_and_clock(connection)
        if flushed > start.lsn and not self._timeline:
            start = replace(start, timeline=0)  # a standby follows its primary to others, and does not tell
        clock = max(clock, Timestamp(after.wall + 1000))
        if start.scan is None and 0 < flushed - start.lsn < log_bytes(limit) and self._pacing.too_early:
            return None
        if flushed > start.lsn or start.scan is not None or start.clock is None:
            # The catalog is read after the end of the log, so it is at least as new, unless it is being altered now.
            altered = self._watched.altered(connection, start)
            catalog = self._watched.refresh(connection, start)
            waits_for = altered or keyless(catalog)
            self._tell(waits_for)
            if waits_for is not None and flushed <= start.lsn and start.scan is None:
                return None
            self._sure = waits_for is None
            # Noted before the blocks of a backfill are counted: a row that is written to later blocks is then read from
            # the log with the new key.
            start = noted(connection, start, catalog)
            try:
                start = self._filters.compared(connection, catalog, start)
                if self._compared is None or not self._compared.holds(catalog, start):
                    start = with_schema_changes(
                        connection,
                        catalog,
                        start,
                        self.context.schema_changes,
                        resolved=self._resolved,
                        options=self._options,
                        # Without a clock, the catalog may not have shown what ended just there.
                        search=partial(self._truncated.truncated, connection, after=start.lsn - (start.clock is None)),
                    )
                removed = self._options.removed_partitions
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
            return self._scan_steps.following(connection, start, start.scan, flushed, after=after, limit=limit)
        self._scan_steps.close()
        lsn = min(flushed, log_end(start, limit))
        if self._first_log_step:  # its log is searched before it is read
            lsn = min(lsn, start.lsn + _FIRST_STEP_BYTES)
        lsn = max(start.lsn, lsn)
        reached = clock if lsn >= flushed and self._sure else None
        plan = self._along_log(connection, replace(start, clock=reached), lsn, until=reached, mark=reached)
        following = log_end(plan.end, limit)
        return replace(plan, following=following if following <= flushed else None)

    def _tell(self, waits_for: str | None) -> None:
        """Say from time to time what resolved marks wait for, when they wait for long."""
        now = time.monotonic()
        if waits_for is None:
            self._tell_at = None
        elif self._tell_at is None:
            self._tell_at = now + _TELL_AFTER_S
        elif now >= self._tell_at:
            self._tell_at = now + _TELL_AGAIN_S
            log.warning("resolved timestamps are on hold: %s", waits_for)

    def _before_the_end(
        self, connection: Connection, start: PostgresToken, limit: StepLimit, last: int, error: TerminalRangefeedError
    ) -> LogPlan:
        """Deliver the log before the schema boundary at which the changefeed ends with *error*, unresolved.

        The log does not say where the boundary is. *last*, the end of the log at which it was found, lies behind it.
        Raises: *error* when that is reached, or when a scan is not complete.
        """
        if start.scan is not None or start.lsn >= last:
            raise error
        self._sure = False
        end = min(last, log_end(start, limit))
        return self._along_log(connection, replace(start, clock=None), end, until=None, mark=None)

    def _along_log(
        self, connection: Connection, start: PostgresToken, end: int, *, until: Timestamp | None, mark: Timestamp | None
    ) -> LogPlan:
        """Plan a step along the log up to *end*."""
        catalog = self._watched.read_once(connection, start)
        start = noted(connection, start, catalog)
        settled = start.lsn >= start.settled
        found: Sequence[tuple[Relation, bool]] = ()
        if end > start.lsn and (not settled or self._first_log_step):
            found = find_relations(self._server, connection, self._slot, start=start.lsn, end=end)
            versions = Versions.of_log(
                connection, catalog, start.tables, found, settled=settled, types=self._watched.types, past=start.types
            )
            self._first_log_step = False
        else:
            versions = self._watched.versions(connection, start.tables)
        types = self._watched.types.types if end >= start.settled else {**self._watched.types.types, **start.types}
        again = start.again if end < start.again else 0
        token = replace(start, lsn=end, tables=versions.states, types=types, again=again)
        if found and self._sure and self._options.removed_partitions == "delete":
            passed = with_passing_partitions(catalog, token, found)
            if passed != token:
                self._sure, token = False, replace(passed, clock=None)
        if versions.passing:
            changes, rules = passing_keys(versions.passing), self.context.schema_changes
            token = with_changes(connection, catalog, token, rules, changes, resolved=self._resolved)
            self._sure, token = False, replace(token, clock=None)
        return LogPlan(
            slot=self._slot,
            start=start,
            end=token,
            catalog=catalog,
            versions=versions,
            until=until,
            mark=mark,
            resolved=start.scan is None and self._sure and not token.again,
        )


def _latest(start: PostgresToken, after: Timestamp) -> Timestamp:
    """Return the timestamp that rows after *start* must exceed: before the first mark, the clock at the start."""
    return after if start.clock is None else max(after, start.clock)
