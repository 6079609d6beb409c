"""The coordinator's part of PostgreSQL: releases the log, and measures how much the server retains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cdc_core import RangefeedContext, SourceHistory, Token
from cdc_rangefeed_postgres.connection import Connection, KeptConnection, Server
from cdc_rangefeed_postgres.long_transactions import LongTransactions
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.names import feed_applications
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_use import unused
from cdc_rangefeed_postgres.temporary import TemporaryObjects
from cdc_rangefeed_postgres.token import endpoint_of

_SPARED = 100
"""Behind a transaction that is still open, the log is released again after so many times what that took last."""
_METRICS = """
SELECT (pg_wal_lsn_diff(l.lsn, s.restart_lsn))::float8, (pg_wal_lsn_diff(l.lsn, s.confirmed_flush_lsn))::float8,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8 FROM pg_stat_activity a
        WHERE a.application_name LIKE %s),
       (pg_wal_lsn_diff(s.confirmed_flush_lsn, s.restart_lsn))::float8, s.restart_lsn::text,
       EXISTS (SELECT FROM pg_stat_activity a WHERE a.application_name LIKE %s),
       pg_snapshot_xmin(pg_current_snapshot())::text,
       CASE WHEN NOT pg_is_in_recovery() THEN NULL WHEN pg_is_wal_replay_paused() THEN 'paused'
            WHEN current_setting('primary_slot_name') <> '' AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)
            THEN 'cut off' END
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn) l
WHERE s.slot_name = %s
"""
_STANDBY = {
    "paused": "the replay of the standby is paused, so no new commit arrives. Run SELECT pg_wal_replay_resume(); there",
    "cut off": "the standby receives no log from its primary, so no new commit arrives. Repair its replication",
}
"""Why a standby has nothing new."""
_AWAITED = """
SELECT current_setting('synchronized_standby_slots', true) FROM pg_stat_activity
WHERE application_name LIKE %s AND wait_event = 'WaitForStandbyConfirmation'
"""


class PostgresHistory(SourceHistory):
    """See `cdc_core.SourceHistory`. Opens one connection. *clock* is monotonic.

    While a decoding session is kept, and until the oldest open transaction has ended, the log is released rarely: the
    server would decode all of it again, and forget none of it.
    """

    def __init__(self, context: RangefeedContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(context)
        self._clock = clock
        self._kept = False
        """Whether there was a decoding session when the metrics were read last."""
        self._spare_until = float("-inf")
        self._oldest = ""
        """The oldest transaction that was open then."""
        self._server = Server(context)
        if context.saved is not None:
            self._server.use(endpoint_of(context.saved))
        self._slot = Slot.of(context)
        self._primary = Primary(self._server)
        self._connection = KeptConnection(self._server, "coordinator")
        self._last_record = 0
        self._released: int | None = None
        self._long_transactions = LongTransactions()
        self._notice: str | None = None

    def release(self, token: Token) -> None:
        with self._server.translated("releasing the log"):
            self._server.use(endpoint_of(token))
            # Nothing but the connection that created a temporary slot can move it.
            connection = TemporaryObjects.of(self._slot).owner if self._slot.temporary else self._connection.open()
            lsn, before, began = parse_lsn(token["lsn"]), self._last_record, self._clock()
            sparingly = self._kept and began < self._spare_until
            self._last_record = self._slot.release(
                connection, lsn, released=self._released, last_record=before, sparingly=sparingly
            )
            ended = self._clock()
            self._spare_until = max(self._spare_until, ended + _SPARED * (ended - began))
            if self._last_record != before:
                self._primary.log_transactions()
            self._released = max(lsn, self._released or 0)

    def metrics(self) -> Mapping[str, float]:
        with self._server.translated("reading metrics"):
            snapshot, session = (f"cdc/%/{self.context.feed_id}/{role}" for role in ("snapshot", "session"))
            connection = self._connection.open()
            row: Any = connection.execute(_METRICS, [snapshot, session, self._slot.name]).fetchone()
            if row is None:
                return {}
            retained, unconfirmed, snapshot_age, again, restart, self._kept, oldest, standby = row
            if oldest != self._oldest:
                self._oldest, self._spare_until = oldest, float("-inf")
            self._notice = self._long_transactions.poll(
                connection, restart=restart, again_bytes=again or 0.0, kept=self._kept
            )
            self._notice = _STANDBY.get(standby, self._notice)
            if self._released is None:  # nothing runs that would keep the slot in use, or it does not get on
                self._notice = self._awaited(connection) or self._notice or unused(connection, self._slot)
        return {
            "retained_bytes": retained or 0.0,
            "unconfirmed_bytes": unconfirmed or 0.0,
            "decoded_again_bytes": again or 0.0,
            "snapshot_age_s": snapshot_age or 0.0,
        }

    def notice(self) -> str | None:
        return None if self._notice is None else self._server.mask(self._notice)

    def close(self) -> None:
        self._connection.close()

    def _awaited(self, connection: Connection) -> str | None:
        """Return, for messages, for which standbys a reader of a failover slot waits; None if none does."""
        row = connection.execute(_AWAITED, [feed_applications(self._slot.feed_id)]).fetchone()
        if row is None:
            return None
        return (
            f"replication slot {self._slot.name} waits until the standbys in synchronized_standby_slots ({row[0]}) have"
            " received the log. Start them, or remove them from the setting"
        )
