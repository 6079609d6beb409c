"""The replication slot and the publication of one changefeed: created, looked after, moved on, dropped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from cdc_core import HistoryLostError, RetryableRangefeedError
from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import feed_applications, quoted
from cdc_rangefeed_postgres.position import lsn_text, parse_lsn

__all__ = ["PLUGIN", "Slot", "SlotState", "cancelled_after", "oldest_writer"]

log = logging.getLogger(__name__)

PLUGIN = "pgoutput"
_STANDBY_SNAPSHOT_BYTES = 4 << 20
"""A restart point this far behind is worth a record that lets it move: each peek decodes from there."""
_TERMINATE_LIMIT_S = 10.0

_STATE = """
SELECT s.plugin::text, s.database::text, s.active_pid, s.confirmed_flush_lsn::text, s.restart_lsn::text, s.wal_status,
       to_jsonb(s) ->> 'invalidation_reason', to_jsonb(s) ->> 'conflicting'
FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_LEFTOVERS = """
SELECT pid FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()
  AND (application_name LIKE %s OR pid IN (SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s))
  AND application_name NOT LIKE '%%/check'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """What pg_replication_slots says of a slot."""

    plugin: str
    database: str
    active_pid: int | None
    confirmed: int
    restart: int
    invalid: str | None
    """Why the slot can no longer be read, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The slot and the publication, which share a name. Holds no connection: each method takes one."""

    name: str
    feed_id: str

    def state(self, connection: Connection) -> SlotState | None:
        """Return the slot's state, None when there is no such slot."""
        row = connection.execute(_STATE, [self.name]).fetchone()
        if row is None:
            return None
        plugin, database, pid, confirmed, restart, wal_status, reason, conflicting = row
        invalid = reason or ("conflict with recovery" if conflicting == "true" else None)
        if invalid is None and wal_status == "lost":
            invalid = "wal_removed"
        return SlotState(
            plugin=plugin or "",
            database=database or "",
            active_pid=pid,
            confirmed=parse_lsn(confirmed) if confirmed else 0,
            restart=parse_lsn(restart) if restart else 0,
            invalid=invalid,
        )

    def create_publication(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Create the publication of *tables*, with partitions under their root's name."""
        names = ", ".join(("" if table.kind == "p" else "ONLY ") + table.sql for table in tables)
        connection.execute(
            f"CREATE PUBLICATION {quoted(self.name)} FOR TABLE {names} WITH (publish_via_partition_root = true)"
        )

    def create(self, connection: Connection, *, limit_s: float) -> int:
        """Create the slot and return its consistent point.

        It waits for the write transactions that are open. Raises: RetryableRangefeedError when that takes longer than
        *limit_s*, and then nothing is left.
        """
        try:
            with cancelled_after(connection, limit_s):
                row = connection.execute(
                    "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s)", [self.name, PLUGIN]
                ).fetchone()
        except psycopg.errors.QueryCanceled:
            raise RetryableRangefeedError(
                f"replication slot {self.name} could not be created within {limit_s:g} s, because transactions that "
                f"have written are still open ({oldest_writer(connection)}): end them, or wait"
            ) from None
        assert row is not None
        return parse_lsn(row[0])

    def require(self, connection: Connection, *, needed: int) -> None:
        """Return when the slot has all changes from *needed* on. Raises: HistoryLostError."""
        state = self.state(connection)
        remedy = "start a changefeed under another name, with an initial scan, to begin anew"
        if state is None:
            raise HistoryLostError(
                f"replication slot {self.name} does not exist any more, so changes after {lsn_text(needed)} are lost: "
                f"{remedy}"
            )
        row = connection.execute("SELECT current_database()::text").fetchone()
        if state.plugin != PLUGIN or row is None or state.database != row[0]:
            raise HistoryLostError(
                f"replication slot {self.name} is not this changefeed's: it uses {state.plugin or 'no plugin'} in "
                f"database {state.database or '(none)'}: {remedy}"
            )
        if state.invalid is not None:
            raise HistoryLostError(
                f"replication slot {self.name} was invalidated ({state.invalid}), so changes after {lsn_text(needed)} "
                f"are lost: drop it, raise max_slot_wal_keep_size, and {remedy}"
            )
        if state.confirmed > needed:
            raise HistoryLostError(
                f"replication slot {self.name} was moved to {lsn_text(state.confirmed)} by something else, so changes "
                f"after {lsn_text(needed)} are lost: {remedy}"
            )

    def advance(self, connection: Connection, lsn: int, *, last_nudge: int) -> int:
        """Let the server forget what lies before *lsn*; return where it was last helped to move the restart point.

        Never moves the slot back, and makes no log of its own unless the restart point lags far behind.
        """
        state = self.state(connection)
        if state is None or state.invalid is not None:
            self.require(connection, needed=lsn)
            return last_nudge
        if state.confirmed < lsn:
            connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.name, lsn_text(lsn)])
        if lsn - state.restart < _STANDBY_SNAPSHOT_BYTES or lsn - last_nudge < _STANDBY_SNAPSHOT_BYTES:
            return last_nudge
        if connection.info.server_version >= 160000:
            connection.execute(
                "SELECT CASE WHEN has_function_privilege('pg_log_standby_snapshot()', 'EXECUTE') "
                "AND NOT pg_is_in_recovery() THEN pg_log_standby_snapshot() END"
            )
        return lsn

    def end_leftovers(self, connection: Connection) -> None:
        """Return when no connection of an earlier run of this changefeed is left, and nobody uses the slot.

        Raises: RetryableRangefeedError when one cannot be ended within a few seconds.
        """
        deadline = time.monotonic() + _TERMINATE_LIMIT_S
        while pids := self._leftovers(connection):
            log.info("ending %d connections of an earlier run of %s", len(pids), self.name)
            for pid in pids:
                try:
                    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                except psycopg.errors.InsufficientPrivilege:
                    log.debug("process %d is another role's", pid)
            if time.monotonic() > deadline:
                raise RetryableRangefeedError(
                    f"replication slot {self.name} is still used by process {pids[0]} of the server: end it with "
                    f"SELECT pg_terminate_backend({pids[0]})"
                )
            time.sleep(0.05)

    def drop(self, connection: Connection) -> None:
        """Remove the slot and the publication, whichever exist."""
        self.end_leftovers(connection)
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.name]
        )
        connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(self.name)}")

    def _leftovers(self, connection: Connection) -> list[int]:
        rows = connection.execute(_LEFTOVERS, [feed_applications(self.feed_id), self.name]).fetchall()
        return [row[0] for row in rows]


@contextmanager
def cancelled_after(connection: Connection, limit_s: float) -> Iterator[None]:
    """Cancel the statement that runs on *connection* in this block when it takes longer than *limit_s*.

    The server's statement_timeout does not reach a slot that is being created.
    """
    timer = threading.Timer(limit_s, connection.cancel_safe, kwargs={"timeout": 5.0})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def oldest_writer(connection: Connection) -> str:
    """Return which open transaction has written and is the oldest, for people."""
    row = connection.execute(
        "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int, application_name FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"
    ).fetchone()
    if row is None:
        row = connection.execute("SELECT gid FROM pg_prepared_xacts ORDER BY prepared LIMIT 1").fetchone()
        return "none that this role may see" if row is None else f"the oldest is prepared transaction {row[0]!r}"
    return f"the oldest is of process {row[0]}, {row[1]} s old, application {row[2]!r}"
