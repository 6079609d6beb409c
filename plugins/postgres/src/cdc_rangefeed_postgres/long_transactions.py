"""Open transactions that hold back the restart point of a slot, so that each step decodes log again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.standby import is_standby

_MIN_BYTES = 64 << 20
"""Less costs about a tenth of a second a step, and is usual without any long transaction."""
_POLL_INTERVAL_S = 10.0
_HOLDS_S = 20.0
"""What holds the restart point for less than this will be over when somebody reads of it."""
_QUERY_CHARACTERS = 100

# Any role sees pid, application and transaction of all sessions, but the rest only of its own ones.
_OLDEST = """
SELECT backend_xid::text, age(backend_xid), pid, application_name, datname::text, xact_start, state, query,
       pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role(usesysid, 'USAGE')
FROM pg_stat_activity WHERE backend_xid IS NOT NULL
UNION ALL
SELECT transaction::text, age(transaction), NULL, gid, database::text, prepared, NULL, NULL, true
FROM pg_prepared_xacts
ORDER BY 2 DESC LIMIT 1
"""
_LITERAL = re.compile(r"'|\$(?!\d)|--|/\*|(?<=\ASET)\b", re.IGNORECASE)
_LEADING_COMMENTS = re.compile(r"\A(\s+|--[^\n]*(\n|$)|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w$\"])\d[\w.]*")


@dataclass(frozen=True, slots=True)
class _Holder:
    """What holds the restart point: `key` names it, `text` describes it for people."""

    key: str
    text: str


class LongTransactions:
    """Watches one slot for transactions that hold its restart point. *clock* is monotonic."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._poll_at = float("-inf")
        self._holder: _Holder | None = None
        self._since = 0.0
        self._level = 0
        self._kept = False
        self._text: str | None = None

    def poll(self, connection: Connection, *, restart: str, again_bytes: float, kept: bool = False) -> str | None:
        """Return who makes each step decode *again_bytes* again, from *restart* on; None when that is little.

        *kept*: while a decoding session is kept, only each start does.

        Asks the server every 10 s at most, and only when it is much. The text changes when another transaction holds
        the restart point, each time that the log doubles, and with *kept*.
        """
        now = self._clock()
        if again_bytes < _MIN_BYTES:
            self._holder = self._text = None
            return None
        if now < self._poll_at:
            return self._text
        self._poll_at = now + _POLL_INTERVAL_S
        holder = _holder(connection, restart)
        if holder is None or self._holder is None or holder.key != self._holder.key:
            self._holder, self._since, self._text, self._level = holder, now, None, 0
        if kept != self._kept:
            self._kept, self._level = kept, 0
        level = int(again_bytes) // _MIN_BYTES
        if holder is not None and now - self._since >= _HOLDS_S and level >= 2 * self._level:
            self._level = 1 << level.bit_length() - 1
            size = self._level * _MIN_BYTES >> 20
            what = f"each {'start' if kept else 'step'} decodes more than {size:,} MB of the log again"
            self._text = f"{what}, from the beginning of {holder.text}"
        return self._text


def _holder(connection: Connection, restart: str) -> _Holder | None:
    """Return the open transaction that has written first of all, None when there is none."""
    if is_standby(connection):
        where = "a transaction that is open on the primary. Find it there in pg_stat_activity or pg_prepared_xacts"
        return _Holder(
            f"restart {restart}", f"{where}, by the greatest age(backend_xid) or age(transaction), and end it"
        )
    row: Any = connection.execute(_OLDEST).fetchone()
    if row is None:
        return None
    xid, _, pid, name, database, begun, state, query, visible = row
    if pid is None:
        gid = name.replace("'", "''")
        return _Holder(
            xid,
            f"prepared transaction '{gid}' in database '{database}', prepared at {_moment(begun)}. Run COMMIT PREPARED"
            f" '{gid}'; or ROLLBACK PREPARED '{gid}'; there",
        )
    who = f"an open transaction: process {pid}, application '{name}', database '{database}'"
    end = f"Commit it, or run SELECT pg_terminate_backend({pid});"
    if not visible:
        seen = f"SELECT xact_start, query FROM pg_stat_activity WHERE pid = {pid};"
        return _Holder(xid, f"{who} (a superuser can see its age and query with {seen}). {end}")
    doing = "query" if state == "active" else f"{state}, last query"
    since = "" if begun is None else f", open since {_moment(begun)}"  # its session does not track what it does
    return _Holder(xid, f"{who}{since}, {doing}: {shown_query(query or '')}. {end}")


def shown_query(query: str) -> str:
    """Return the beginning of *query* without the values in it: up to the first text or comment, numbers left out."""
    text = _LEADING_COMMENTS.sub("", query, count=1)
    found = _LITERAL.search(text)
    shown = " ".join(_NUMBER.sub("?", text[: found.start()] if found else text).split())
    if found is None and len(shown) <= _QUERY_CHARACTERS:
        return shown
    return f"{shown[:_QUERY_CHARACTERS].rstrip()} …".lstrip()


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
