"""The coordinator's part of PostgreSQL: releases the log, and measures how much the server retains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_core import RangefeedContext, SourceHistory, Token
from cdc_rangefeed_postgres.connection import KeptConnection, Server
from cdc_rangefeed_postgres.long_transactions import LongTransactions
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_use import unused
from cdc_rangefeed_postgres.temporary import TemporaryObjects
from cdc_rangefeed_postgres.token import endpoint_of

__all__ = ["PostgresHistory"]

_METRICS = """
SELECT (pg_wal_lsn_diff(l.lsn, s.restart_lsn))::float8, (pg_wal_lsn_diff(l.lsn, s.confirmed_flush_lsn))::float8,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8 FROM pg_stat_activity a
        WHERE a.application_name LIKE %s),
       (pg_wal_lsn_diff(s.confirmed_flush_lsn, s.restart_lsn))::float8, s.restart_lsn::text
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn) l
WHERE s.slot_name = %s
"""


class PostgresHistory(SourceHistory):
    """See `cdc_core.SourceHistory`. Opens one connection."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
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
            lsn, before = parse_lsn(token["lsn"]), self._last_record
            self._last_record = self._slot.release(connection, lsn, released=self._released, last_record=before)
            if self._last_record != before:
                self._primary.log_transactions()
            self._released = max(lsn, self._released or 0)

    def metrics(self) -> Mapping[str, float]:
        with self._server.translated("reading metrics"):
            pattern = f"cdc/%/{self.context.feed_id}/snapshot"
            connection = self._connection.open()
            row: Any = connection.execute(_METRICS, [pattern, self._slot.name]).fetchone()
            if row is None:
                return {}
            retained, unconfirmed, snapshot_age, again, restart = row
            self._notice = self._long_transactions.poll(connection, restart=restart, again_bytes=again or 0.0)
            if self._released is None:  # nothing runs that would keep the slot in use
                self._notice = self._notice or unused(connection, self._slot)
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
