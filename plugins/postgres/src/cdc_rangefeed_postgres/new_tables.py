"""Tables that begin to match the patterns of a changefeed while it runs, and tables that leave it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

import psycopg

from cdc_core import ConfigError, RangefeedContext, RestartError, TerminalRangefeedError, Timestamp
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.catalog_queries import load_again
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.members import check_new_table, find_tables, gone_from, name_taken
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.selection import Selection, exclusion
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken

log = logging.getLogger(__name__)

_LOCK_TIMEOUT = "100ms"
_LOOK_AGAIN_S = 10.0
"""After this time a table that could not be followed is checked again, even if it looks the same."""


class NewTables:
    """Finds tables that can join, and publishes them. The attempt ends then, and the next one begins with them."""

    def __init__(self, context: RangefeedContext, slot: Slot, primary: Primary) -> None:
        self.selection = Selection.parse(context.tables)
        self._diff = context.diff
        self._slot = slot
        self._primary = primary
        self._replay_wait_s: float = context.options.snapshot_wait
        self._begun_at: tuple[int, Timestamp | None] | None = None
        self._refused: Catalog | None = None
        self._again_at = 0.0
        self._told: set[tuple[int, str]] = set()

    def poll(self, connection: Connection, catalog: Catalog, token: PostgresToken, *, near_end: bool) -> bool:
        """Return when the tables of *catalog* remain the ones to follow for now; False while one waits to join.

        Nothing after *token* may be resolved then. It waits for a lock for a moment at most. So that tables which come
        one after the other do not keep the changefeed from its work, they join and leave when no scan is left, and
        this attempt has taken a step and is *near_end*: the next step reaches the end of the log.
        Raises: RestartError when tables join or leave. TerminalRangefeedError when a new table has the name
        under which another one is followed.
        """
        place = token.lsn, token.clock
        self._begun_at = self._begun_at or place
        ready = near_end and token.scan is None and place != self._begun_at
        if ready and (gone := gone_from(catalog, token)):
            raise RestartError(f"stopped following dropped tables: {_names(gone)}")
        if not self.selection.patterns and not any(table.renamed for table in catalog.tables.values()):
            return True
        oids = []
        again = False
        """Whether a table was created under the name of one that was dropped, and waits until that one has left."""
        for name, oid in find_tables(connection, self.selection).items():
            if oid in catalog.by_oid:
                continue
            other = catalog.tables.get(name)
            if other is None:
                oids.append(oid)
            elif not other.gone:
                raise TerminalRangefeedError(name_taken(other))
            else:
                again = True
        if not oids or again:
            return not again
        publication = self._slot.publication
        found = load_again(connection, self._refused, publication=publication.name, oids=oids, nulls=publication.nulls)
        now = time.monotonic()
        if found is self._refused and now < self._again_at:
            return True
        fit = [table for table in found.tables.values() if self._is_fit(connection, table)]
        if not fit:
            self._refused, self._again_at = found, now + _LOOK_AGAIN_S
            return True
        names = _names(table.name.qualified for table in fit)
        if not self._publish(connection, fit, names) or not ready:
            return False
        raise RestartError(f"new tables matched: {names}; starting their initial scan")

    def _is_fit(self, connection: Connection, table: Table) -> bool:
        publication = self._slot.publication
        try:
            if publication.given and not table.published:
                raise ConfigError(
                    f"table {table.name} is not in publication {publication.name}. Run ALTER PUBLICATION "
                    f"{quoted(publication.name)} ADD TABLE {table.sql};"
                )
            check_new_table(connection, publication, table, diff=self._diff)
        except ConfigError as error:
            entry = exclusion(table.name.schema, table.name.table)
            text = str(error).rstrip(";.")
            self._tell(
                table, f"{text}. Until then the table is skipped. To skip it permanently, add '{entry}' to 'tables'"
            )
            return False
        return True

    def _publish(self, connection: Connection, tables: Sequence[Table], names: str) -> bool:
        """Return whether *tables* are published now."""
        if self._slot.publication.given:
            return True
        try:
            publishing = self._primary.publishing(connection, lock_timeout_s=0.0, wait_s=self._replay_wait_s)
            with publishing as publisher, publisher.transaction():
                publisher.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                self._slot.publication.change(publisher, add=tables, drop=())
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
            for table in tables:
                self._tell(
                    table,
                    f"resolved timestamps are on hold until {names} can be published: another transaction holds a lock",
                )
            return False
        return True

    def _tell(self, table: Table, text: str) -> None:
        if (table.oid, text) not in self._told:
            self._told.add((table.oid, text))
            log.warning("%s", text)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
