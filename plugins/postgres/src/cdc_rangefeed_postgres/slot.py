"""The replication slot of one changefeed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Self

import psycopg

from cdc_core import START_OVER, ConfigError, HistoryLostError, RangefeedContext, RetryableRangefeedError, counted
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_rangefeed_postgres.names import TEMPORARY, feed_applications, object_name, quoted, temporary_name
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.remedies import NEW_SLOT, START_AGAIN
from cdc_rangefeed_postgres.running_transactions import log_running_transactions
from cdc_rangefeed_postgres.slot_creation import canceled_after, why_waiting

log = logging.getLogger(__name__)

PLUGIN = "pgoutput"
_LARGE_LAG_BYTES = 4 << 20
"""When the restart point is this far behind, ask for a log record that lets it move: each read decodes from there."""
_TERMINATE_LIMIT_S = 10.0

_STATE = """
SELECT s.plugin::text, s.database::text, s.confirmed_flush_lsn::text, s.restart_lsn::text, s.wal_status,
       to_jsonb(s) ->> 'invalidation_reason', to_jsonb(s) ->> 'conflicting', to_jsonb(s) ->> 'failover' = 'true',
       s.two_phase
FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_FEEDBACK = "Set hot_standby_feedback = on and primary_slot_name on the standby"
_AGAINST = {
    "rows_removed": _FEEDBACK,
    "conflict with recovery": _FEEDBACK,
    "wal_level_insufficient": "Set wal_level = logical on the primary and on its standbys",
    "idle_timeout": "Raise idle_replication_slot_timeout",
}
"""What prevents that a slot is invalidated, by reason."""
# On a standby, the log that was received may be more than what was replayed. A changefeed can begin at the end of a log
# that is not durable yet.
_END = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() END::text"
_DROP = """
SELECT pg_drop_replication_slot(s.slot_name) FROM pg_replication_slots s
WHERE s.slot_name = %s AND NOT (pg_is_in_recovery() AND coalesce((to_jsonb(s) ->> 'synced')::bool, false))
"""
_OLD_CONNECTIONS = f"""
SELECT pid FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()
  AND (application_name LIKE %s OR pid IN (SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s))
  AND application_name NOT LIKE '%%/check' AND application_name NOT LIKE '%%/{TEMPORARY}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """A slot in pg_replication_slots."""

    plugin: str
    """Empty for a physical slot."""
    database: str
    confirmed: int
    restart: int
    invalid: str | None
    """Why the slot can no longer be read, or None."""
    failover: bool
    """Whether the slot is synchronized to standbys."""
    two_phase: bool
    """Whether transactions are in its log when they are prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The slot, and the publication that it is read with. Holds no connection. Picklable."""

    name: str
    given: bool
    """Whether it existed before: then it is read and advanced, but never created or dropped."""
    own: str
    """The name of the one that the changefeed creates when none is given."""
    failover: bool
    """Whether standbys must have the slot too."""
    publication: Publication
    feed_id: str
    temporary: bool = False
    """Whether it is a temporary slot, which only the connection that created it can read and advance."""
    origin: str | None = None
    """Of a temporary slot: the one that existed before, of which it is a copy."""

    @classmethod
    def of(cls, context: RangefeedContext) -> Self:
        """Return the slot of a changefeed. Connects to nothing."""
        options, given = context.options, context.options.slot_name
        if context.temporary:
            return cls._temporary(context)
        own = object_name(context.changefeed, context.feed_id)
        return cls(
            name=given or own,
            given=given is not None,
            own=own,
            failover=options.failover,
            publication=Publication.of(context),
            feed_id=context.feed_id,
        )

    @classmethod
    def _temporary(cls, context: RangefeedContext) -> Self:
        own, publication = temporary_name(context.changefeed, context.feed_id), Publication.of(context)
        return cls(
            name=own,
            given=False,
            own=own,
            failover=False,
            publication=publication,
            feed_id=context.feed_id,
            temporary=True,
            # Without the publication of that slot, nothing that it has from before now could be read.
            origin=context.options.slot_name if publication.given else None,
        )

    @property
    def shown(self) -> str:
        """The name of the slot that a user can do something about: of a copy, the one that existed before."""
        return self.origin or self.name

    @property
    def remedy(self) -> str:
        """What to do when history is lost. A temporary slot ends with its run, and nothing of that remains."""
        return START_AGAIN if self.temporary else NEW_SLOT

    def state(self, connection: Connection) -> SlotState | None:
        """Return the slot's state; None when the slot does not exist."""
        row = connection.execute(_STATE, [self.name]).fetchone()
        if row is None:
            return None
        plugin, database, confirmed, restart, wal_status, reason, conflicting, failover, two_phase = row
        invalid = reason or ("conflict with recovery" if conflicting == "true" else None)
        if invalid is None and wal_status == "lost":
            invalid = "wal_removed"
        return SlotState(
            plugin=plugin or "",
            database=database or "",
            confirmed=parse_lsn(confirmed) if confirmed else 0,
            restart=parse_lsn(restart) if restart else 0,
            invalid=invalid,
            failover=bool(failover),
            two_phase=two_phase,
        )

    def create(self, connection: Connection, *, limit_s: float, temporary: bool = False) -> int:
        """Create the slot and return its consistent point. The server first waits for all open write transactions.

        Raises: RetryableRangefeedError when that takes longer than *limit_s*; no slot is left then.
        """
        more = ", failover => true" if self.failover and not temporary else ""
        try:
            with canceled_after(connection, limit_s):
                row = connection.execute(
                    f"SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s, temporary => %s{more})",
                    [self.name, PLUGIN, temporary],
                ).fetchone()
        except psycopg.errors.QueryCanceled:
            reason, remedy = why_waiting(connection)
            raise RetryableRangefeedError(
                f"replication slot {self.name}: not created within {limit_s:g} s because {reason}. {remedy}"
            ) from None
        assert row is not None
        return parse_lsn(row[0])

    def require(self, connection: Connection, *, needed: int) -> None:
        """Return when the slot has all changes from *needed* on. Raises: HistoryLostError."""
        row = connection.execute(_END).fetchone()
        if row is not None and row[0] is not None and parse_lsn(row[0]) < needed:
            raise HistoryLostError(
                f"the server's log ends at {row[0]}, but changes up to {lsn_text(needed)} were delivered: the server "
                "was restored from a backup, or is a standby that was promoted before it had received them. "
                f"{self.remedy}"
            )
        state = self.require_kept(connection, needed=needed)
        if state.confirmed > needed:
            raise HistoryLostError(
                f"replication slot {self.name} was moved to {lsn_text(state.confirmed)} by another program: changes "
                f"after {lsn_text(needed)} are lost. {self.remedy}"
            )

    def require_kept(self, connection: Connection, *, needed: int) -> SlotState:
        """Return the slot's state when it is there and retains log, also while a run reads it from *needed* on.

        Raises: HistoryLostError.
        """
        state = self.state(connection)
        if state is None:
            raise HistoryLostError(
                f"replication slot {self.name} no longer exists: changes after {lsn_text(needed)} are lost. "
                f"{self.remedy}"
            )
        row = connection.execute("SELECT current_database()::text").fetchone()
        if state.plugin != PLUGIN or row is None or state.database != row[0]:
            raise HistoryLostError(
                f"replication slot {self.name} does not belong to this changefeed: it uses "
                f"{state.plugin or 'no plugin'} in database {state.database or '(none)'}. "
                f"{START_AGAIN if self.temporary else START_OVER}"
            )
        if state.invalid is not None:
            raise HistoryLostError(
                f"replication slot {self.name} was invalidated ({state.invalid}): changes after {lsn_text(needed)} are "
                f"lost. {_AGAINST.get(state.invalid, 'Raise max_slot_wal_keep_size')}. {self.remedy}"
            )
        return state

    def require_failover(self, state: SlotState) -> None:
        """Return when the slot is a failover slot, or need not be one. Raises: ConfigError."""
        if self.failover and not state.failover:
            raise ConfigError(
                f"replication slot {self.name} was created without failover, which option 'failover' requires. Run "
                f"ALTER_REPLICATION_SLOT {self.name} (FAILOVER true); on a replication connection, or set failover = "
                "false"
            )

    def peek(self, end: int | None, *, binary: bool, changes: int | None = None) -> str:
        """Return the item of a SQL FROM clause that decodes the log up to *end*.

        The server stops after the first record that ends at or after *end*. The result has every transaction with
        `final_lsn < end` and perhaps one more, which the caller must leave out. It also stops after the transaction
        with message number *changes*.
        """
        return self._decoded("peek", self.name, end, binary=binary, changes=changes)

    def consume(self, copy: str, end: int, *, binary: bool) -> str:
        """Return the like for the slot *copy*, a copy of this one, which then begins where the server stopped."""
        return self._decoded("get", copy, end, binary=binary, changes=None)

    def stream(self, copy: str, *, binary: bool) -> str:
        """Return the replication command that sends what *copy*, a copy of this slot, has and will have."""
        options = ", ".join(f"{name} {value}" for name, value in self._options(binary=binary).items())
        return f'START_REPLICATION SLOT "{copy}" LOGICAL 0/0 ({options})'

    def _decoded(self, how: str, name: str, end: int | None, *, binary: bool, changes: int | None) -> str:
        upto = "NULL" if end is None else f"'{lsn_text(end)}'"
        options = ", ".join(f"'{option}', {value}" for option, value in self._options(binary=binary).items())
        return f"pg_logical_slot_{how}_binary_changes('{name}', {upto}, {changes or 'NULL'}, {options})"

    def _options(self, *, binary: bool) -> dict[str, str]:
        """Return the options of the output plugin, their values as SQL literals."""
        publication = quoted(self.publication.name).replace("'", "''")
        return {
            "proto_version": "'1'",
            "publication_names": f"'{publication}'",
            "binary": f"'{'true' if binary else 'false'}'",
        }

    def release(
        self, connection: Connection, lsn: int, *, released: int | None, last_record: int, sparingly: bool = False
    ) -> int:
        """Let the server forget the log before *lsn*. Never moves the slot back.

        With *sparingly*, not while the server would decode more log again for that than it would forget: behind an open
        transaction.

        *released* is the greatest LSN of the calls before, None for the first call. Raises: HistoryLostError when
        another program has moved a slot that existed before.

        The server decodes from the slot's restart point, which only moves at certain log records. When it is far
        behind, ask the server to write one. Returns the LSN of the last such request, *last_record* for the next call.
        """
        state = self.state(connection)
        if state is None or state.invalid is not None:
            self.require(connection, needed=lsn)
            return last_record
        if self.given and released is not None and state.confirmed > released:
            self.require(connection, needed=released)
        if state.confirmed < lsn and not (sparingly and lsn - state.confirmed < state.confirmed - state.restart):
            connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.name, lsn_text(lsn)])
        if lsn - state.restart < _LARGE_LAG_BYTES or lsn - last_record < _LARGE_LAG_BYTES:
            return last_record
        log_running_transactions(connection)
        return lsn

    def end_old_connections(self, connection: Connection) -> None:
        """Return when this changefeed has no other connection, and nothing uses the slot that it created.

        Raises: RetryableRangefeedError when a connection does not end within a few seconds.
        """
        deadline = time.monotonic() + _TERMINATE_LIMIT_S
        while pids := self._old_connections(connection):
            for pid in pids:
                try:
                    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                except psycopg.errors.InsufficientPrivilege:
                    log.debug("process %d belongs to another role", pid)
            log.info("ended %s of an earlier attempt of %s", counted(len(pids), "connection"), self.name)
            if time.monotonic() > deadline:
                raise RetryableRangefeedError(
                    f"replication slot {self.name} is still in use by server process {pids[0]}. End it with "
                    f"SELECT pg_terminate_backend({pids[0]})"
                )
            time.sleep(0.05)

    def drop(self, connection: Connection) -> None:
        """Drop the slot that the changefeed created, if it exists; never one that existed before.

        A copy on a standby disappears with the slot of the primary.
        """
        self.end_old_connections(connection)
        if not (self.given and self.name == self.own):
            connection.execute(_DROP, [self.own])

    def _old_connections(self, connection: Connection) -> list[int]:
        created = None if self.given and self.name == self.own else self.own
        rows = connection.execute(_OLD_CONNECTIONS, [feed_applications(self.feed_id), created]).fetchall()
        return [row[0] for row in rows]
