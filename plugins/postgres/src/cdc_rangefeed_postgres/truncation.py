"""TRUNCATE of watched tables, for which PostgreSQL can tell neither rows nor keys.

It gives a table an empty file and drops the old one at its commit, and no snapshot shows the old file. So when the log
shows it, or the catalog for a single partition, nothing can say which rows are to be deleted at the sink.

pgoutput has no TRUNCATE of a single partition. It leaves the partition's statistics unknown until ANALYZE gathers them,
and then the partition looks as after VACUUM FULL. So for a partition that has another file, the log is decoded once
more, by test_decoding, a plugin that comes with PostgreSQL and tells of every TRUNCATE.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import psycopg

from cdc_core import TerminalRangefeedError, counted
from cdc_rangefeed_postgres.catalog import Leaf
from cdc_rangefeed_postgres.client_errors import text_of
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.slot import Slot

__all__ = ["Truncate", "TruncateSearch", "note_partitions", "note_tables"]

log = logging.getLogger(__name__)

Truncate = Literal["stop", "keep"]

_NAME_BYTES = 63
_DECODER = "test_decoding"
_NO_SEARCH = ("58P01", "53400", "42501", "42883", "0A000", "55000")
"""No such plugin, no free slot, no right, no such function, not supported, and a slot that is just being moved."""
_MARK = ": TRUNCATE: "
_SEARCH = f"""
WITH found AS MATERIALIZED (
    SELECT lsn, xid::text AS xid, data
    FROM pg_logical_slot_get_changes(%s, NULL, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')
    WHERE data = 'COMMIT' OR data ~ '^table .*{_MARK}')
SELECT t.data FROM found t JOIN found c ON c.xid = t.xid AND c.data = 'COMMIT'
WHERE t.data <> 'COMMIT' AND c.lsn >= %s::pg_lsn
"""


def note_tables(names: Sequence[str], truncate: Truncate) -> None:
    """Warn of the truncated tables *names*. Raises: TerminalRangefeedError with "stop"."""
    _note(f"table {names[0]} was" if len(names) == 1 else f"tables {', '.join(names)} were", truncate)


def note_partitions(table: str, names: Sequence[str], truncate: Truncate) -> None:
    """Warn of the truncated partitions *names* of *table*. Raises: TerminalRangefeedError with "stop"."""
    which = f"{counted(len(names), 'partition')} ({', '.join(names[:5])})"
    _note(f"table {table}: {which} {'was' if len(names) == 1 else 'were'}", truncate)


class TruncateSearch:
    """Finds in the log which partitions were truncated. Searches once for each file of a partition."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._answers: dict[tuple[int, int], bool] = {}

    def truncated(self, connection: Connection, leaves: Sequence[tuple[Leaf, int]], *, start: int) -> list[Leaf]:
        """Return those of *leaves*, which have these new files, that a transaction after *start* has truncated.

        Where the server cannot decode the log once more, as without a free slot, it finds nothing and logs a warning.
        """
        unknown = [(leaf, file) for leaf, file in leaves if (leaf.oid, file) not in self._answers]
        if unknown:
            names = self._names(connection, [leaf for leaf, _ in unknown], start)
            for leaf, file in unknown:
                self._answers[leaf.oid, file] = leaf.qualified in names
        return [leaf for leaf, file in leaves if self._answers[leaf.oid, file]]

    def _names(self, connection: Connection, leaves: Sequence[Leaf], start: int) -> set[str]:
        shown = ", ".join(leaf.qualified for leaf in leaves)
        try:
            messages = self._search(connection, start)
        except psycopg.Error as error:
            if error.sqlstate not in _NO_SEARCH:
                raise
            log.warning(
                "partitions %s have new files, and the log cannot be searched for TRUNCATE: %s", shown, text_of(error)
            )
            return set()
        listed = [f", {message.removeprefix('table ').rpartition(_MARK)[0]}, " for message in messages]
        query = (
            "SELECT format('%%I.%%I', n, t) FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY l(n, t, o) ORDER BY o"
        )
        rows = connection.execute(query, [[leaf.schema for leaf in leaves], [leaf.name for leaf in leaves]]).fetchall()
        return {
            leaf.qualified
            for leaf, (name,) in zip(leaves, rows, strict=True)
            if any(f", {name}, " in names for names in listed)
        }

    def _search(self, connection: Connection, start: int) -> list[str]:
        suffix = f"_copy_{secrets.token_hex(4)}"
        copy = self._slot.name[: _NAME_BYTES - len(suffix)] + suffix
        connection.execute(
            "SELECT pg_copy_logical_replication_slot(%s, %s, true, %s)", [self._slot.name, copy, _DECODER]
        )
        try:
            return [row[0] for row in connection.execute(_SEARCH, [copy, lsn_text(start)])]
        finally:
            with suppress(psycopg.Error):  # it ends with the connection
                connection.execute("SELECT pg_drop_replication_slot(%s)", [copy])


def _note(who: str, truncate: Truncate) -> None:
    if truncate == "keep":
        log.warning("%s truncated; the rows stay at the sink", who)
        return
    raise TerminalRangefeedError(
        f"{who} truncated, and a changefeed has no row changes for that. To leave the rows at the sink and continue, "
        f"set truncate = 'keep'. {READ_ANEW}"
    )
