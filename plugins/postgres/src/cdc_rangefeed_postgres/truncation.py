"""TRUNCATE of watched tables, for which PostgreSQL can tell neither rows nor keys.

It gives a table an empty file and drops the old one at its commit, and no snapshot shows the old file. So when the log
shows it, or the catalog for a single partition, nothing can say which rows are to be deleted at the sink.

pgoutput has no TRUNCATE of a single partition. It leaves the partition's statistics unknown until ANALYZE gathers them,
and then the partition looks as after VACUUM FULL. So for a partition that has another file, the log is decoded once
more, by test_decoding, a plugin that comes with PostgreSQL and tells of every TRUNCATE. That takes as long as the log
since the last step is, so it has a limit.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

import psycopg

from cdc_core import TerminalRangefeedError, counted
from cdc_rangefeed_postgres.catalog import Leaf
from cdc_rangefeed_postgres.client_errors import sqlstate, text_of
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import flushed_and_clock, lsn_text
from cdc_rangefeed_postgres.names import copy_name
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.slot import Slot

log = logging.getLogger(__name__)

Truncate = Literal["stop", "keep"]

_DECODER = "test_decoding"
_NOW = ("53400", "55000")
"""Why there is no copy of the slot at this moment: no slot is free, or this one is just being moved."""
_NO_SEARCH = ("58P01", "42501", "42883", "0A000", "57014", "53100", *_NOW)
"""No such plugin, no right, no such function, not supported, too long, and no room: on the disk, or as by
temp_file_limit."""
_TRIES = 10
_TRY_AGAIN_S = 1.0
_LIMIT_S = 60.0
_MARK = ": TRUNCATE: "
_LISTED = re.compile(r'(?:"(?:[^"]|"")*"|[^",])+')
"""A name in SQL, in a list."""
_SEARCH = f"""
WITH found AS MATERIALIZED (
    SELECT lsn, xid::text AS xid, data
    FROM pg_logical_slot_get_changes(%s, %s, NULL, 'include-xids', '0', 'skip-empty-xacts', '1')
    WHERE data = 'COMMIT' OR data ~ '^table .*{_MARK}')
SELECT t.data FROM found t JOIN found c ON c.xid = t.xid AND c.data = 'COMMIT'
WHERE t.data <> 'COMMIT' AND c.lsn > %s::pg_lsn
"""


def note_tables(names: Sequence[str], truncate: Truncate) -> None:
    """Warn of the truncated tables *names*. Raises: TerminalRangefeedError with "stop"."""
    _note(f"table {names[0]} was" if len(names) == 1 else f"tables {', '.join(names)} were", truncate)


class PartitionsTruncatedError(TerminalRangefeedError):
    """Partitions were truncated, and the policy is to stop. `partitions` are all of them, by table of the token."""

    def __init__(self, message: str, partitions: Mapping[str, Sequence[str]]) -> None:
        super().__init__(message)
        self.partitions = partitions


def note_partitions(partitions: Mapping[str, Sequence[str]], truncate: Truncate) -> None:
    """Warn of the truncated *partitions* of tables. Raises: PartitionsTruncatedError with "stop"."""
    for table, names in partitions.items():
        which = f"{counted(len(names), 'partition')} ({', '.join(names[:5])})"
        try:
            _note(f"table {table}: {which} {'was' if len(names) == 1 else 'were'}", truncate)
        except TerminalRangefeedError as error:
            raise PartitionsTruncatedError(str(error), partitions) from None


class TruncateSearch:
    """Finds in the log which partitions were truncated. Searches once for each file of a partition."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._answers: dict[tuple[int, int], bool] = {}
        self._warned: set[tuple[int, int]] = set()
        self._given_up: set[tuple[int, int]] = set()

    def truncated(self, connection: Connection, leaves: Sequence[tuple[Leaf, int]], *, after: int) -> list[Leaf]:
        """Return those of *leaves*, which have these new files, that a transaction which ends after *after* truncated.

        Where the server cannot decode the log once more, it finds nothing and logs a warning. It waits for a free slot,
        but not for long.
        """
        known = self._answers.keys() | self._given_up
        unknown = [(leaf, file) for leaf, file in leaves if (leaf.oid, file) not in known]
        if unknown:
            self._find(connection, unknown, after)
        return [leaf for leaf, file in leaves if self._answers.get((leaf.oid, file), False)]

    def _find(self, connection: Connection, leaves: Sequence[tuple[Leaf, int]], after: int) -> None:
        files = {(leaf.oid, file) for leaf, file in leaves}
        try:
            with self._copy(connection, tries=1 if files <= self._warned else _TRIES) as copy:
                messages = None if copy is None else self._search(connection, copy, after)
            failure = "all replication slots are in use, or the slot is being moved"
        except psycopg.Error as error:
            if sqlstate(error) not in _NO_SEARCH:
                raise
            messages, failure = None, text_of(error)
            self._given_up |= files
        if messages is not None:
            names = _named(connection, [leaf for leaf, _ in leaves], messages)
            self._answers |= {(leaf.oid, file): leaf.qualified in names for leaf, file in leaves}
        elif not files <= self._warned:
            self._warned |= files
            shown = ", ".join(leaf.qualified for leaf, _ in leaves)
            log.warning("partitions %s have new files, but the log cannot be searched for TRUNCATE: %s", shown, failure)

    @contextmanager
    def _copy(self, connection: Connection, *, tries: int) -> Iterator[str | None]:
        """Yield the name of a temporary copy of the slot; None when there can be none at this moment."""
        copy = copy_name(self._slot.name)
        query = "SELECT pg_copy_logical_replication_slot(%s, %s, true, %s)"
        for left in reversed(range(tries)):
            try:
                connection.execute(query, [self._slot.name, copy, _DECODER])
                break
            except psycopg.Error as error:
                if sqlstate(error) not in _NOW:
                    raise
            if left:
                time.sleep(_TRY_AGAIN_S)
        else:
            yield None
            return
        try:
            yield copy
        finally:
            with suppress(psycopg.Error):  # it ends with the connection, and with an error on it
                connection.execute("SELECT pg_drop_replication_slot(%s)", [copy])

    def _search(self, connection: Connection, copy: str, after: int) -> list[str]:
        # The end is read after the catalog. TRUNCATE is durable before the catalog shows it.
        upto, _ = flushed_and_clock(connection)
        with connection.transaction():  # a failure in it ends the limit too
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{int(_LIMIT_S * 1000)}ms"])
            return [row[0] for row in connection.execute(_SEARCH, [copy, lsn_text(upto), lsn_text(after)])]


def _named(connection: Connection, leaves: Sequence[Leaf], messages: Sequence[str]) -> set[str]:
    """Return the names of those of *leaves* that *messages* of test_decoding say were truncated."""
    listed = (_LISTED.findall(message.removeprefix("table ").rpartition(_MARK)[0]) for message in messages)
    truncated = {name.strip() for names in listed for name in names}
    query = "SELECT format('%%I.%%I', n, t) FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY l(n, t, o) ORDER BY o"
    rows = connection.execute(query, [[leaf.schema for leaf in leaves], [leaf.name for leaf in leaves]]).fetchall()
    return {leaf.qualified for leaf, (name,) in zip(leaves, rows, strict=True) if name in truncated}


def _note(who: str, truncate: Truncate) -> None:
    if truncate == "keep":
        log.warning("%s truncated; the rows stay at the sink", who)
        return
    raise TerminalRangefeedError(
        f"{who} truncated, and TRUNCATE logs no row changes. To leave the rows at the sink and continue, set truncate "
        f"= 'keep'. {READ_ANEW}"
    )
