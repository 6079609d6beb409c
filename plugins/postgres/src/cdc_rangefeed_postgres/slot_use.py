"""Keeping a replication slot in use, where idle_replication_slot_timeout (PostgreSQL 18) would invalidate it."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

import psycopg

from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.slot import Slot

log = logging.getLogger(__name__)

_POLL_S = 10.0
_MIN_LIMIT_S = 600
"""One step, or one wait for a destination, may take as long without any use of the slot."""

_LIMIT = "extract(epoch FROM current_setting('idle_replication_slot_timeout', true)::interval)::float8"
_SHOWN = f"SELECT current_setting('idle_replication_slot_timeout', true), {_LIMIT}"
_SINCE = f"""
SELECT s.confirmed_flush_lsn::text, extract(epoch FROM (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8,
       extract(epoch FROM clock_timestamp())::float8, {_LIMIT}
FROM pg_replication_slots s
WHERE s.slot_name = %s AND NOT s.temporary AND to_jsonb(s) ->> 'invalidation_reason' IS NULL
"""


class SlotUse:
    """Keeps one slot in use while a changefeed runs, also one that has nothing to read."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._poll_at = float("-inf")

    def keep(self, connection: Connection) -> None:
        """Use the slot if it was unused for a quarter of the limit. Asks the server every 10 s at most."""
        now = time.monotonic()
        if now < self._poll_at:
            return
        self._poll_at = now + _POLL_S
        found = _since(connection, self._slot)
        if found is None or found[2] - found[1] < found[3] / 4:
            return
        try:
            # It stays where it is: whoever acquires a slot has used it.
            connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot.name, found[0]])
        except psycopg.errors.ObjectInUse:
            log.debug("replication slot %s is in use", self._slot.name)


def unused(connection: Connection, slot: Slot) -> str | None:
    """Return when the server invalidates *slot*, for messages, once half of the limit has passed without any use."""
    found = _since(connection, slot)
    if found is None or found[2] - found[1] < found[3] / 2:
        return None
    moments = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" for at in (found[1], found[1] + found[3])]
    return (
        f"replication slot {slot.name} has not been used since {moments[0]}, and the server invalidates it at "
        f"{moments[1]}, by idle_replication_slot_timeout. Resume the changefeed before then, or raise the setting"
    )


def log_idle_limit(connection: Connection) -> None:
    """Say what idle_replication_slot_timeout means for a changefeed, if it is set."""
    row: Any = connection.execute(_SHOWN).fetchone()
    shown, limit_s = row
    if not limit_s:
        return
    if limit_s < _MIN_LIMIT_S:
        log.warning(
            "idle_replication_slot_timeout is %s: a changefeed that waits for its destination for that long, or is"
            " paused or stopped for that long, loses its replication slot. Run ALTER SYSTEM SET"
            " idle_replication_slot_timeout = '1d'; SELECT pg_reload_conf();",
            shown,
        )
    else:
        log.warning(
            "idle_replication_slot_timeout is %s: a changefeed that is paused or stopped for that long loses its "
            "replication slot. Resume it before then, or raise the setting",
            shown,
        )


def _since(connection: Connection, slot: Slot) -> tuple[str, float, float, float] | None:
    """Return the position of *slot*, since when it is unused, the clock, and the limit; None when there is no limit."""
    row: Any = connection.execute(_SINCE, [slot.name]).fetchone()
    return row if row is not None and all(row) else None
