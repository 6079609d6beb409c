"""The catalog of the watched tables: read again for each step, with the types that their columns have had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cdc_core import ConfigError, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.catalog_queries import array_text, load_again
from cdc_rangefeed_postgres.checks import check_key, check_logged
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import newest
from cdc_rangefeed_postgres.members import dropped, followed, log_renamed
from cdc_rangefeed_postgres.new_tables import NewTables
from cdc_rangefeed_postgres.publication_changes import compared, require_unaltered
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.selection import Selection, exclusion
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.temporary import TemporaryObjects
from cdc_rangefeed_postgres.token import PostgresToken, TableState
from cdc_rangefeed_postgres.types import TypeCatalog
from cdc_rangefeed_postgres.versions import Versions, present_types

# ATTACH PARTITION and DETACH PARTITION CONCURRENTLY take the weaker lock on the table above the partition. Only a
# change of an enum takes that lock on a type.
_ALTERING = """
WITH RECURSIVE watched AS (
    SELECT oid FROM unnest(%(tables)s::oid[]) AS t(oid)
    UNION ALL SELECT h.inhrelid FROM watched w JOIN pg_inherits h ON h.inhparent = w.oid)
SELECT coalesce(w.oid::regclass::text, l.objid::regtype::text),
       coalesce('process ' || l.pid, 'a prepared transaction')
FROM pg_locks l LEFT JOIN watched w ON w.oid = l.relation
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND ((w.oid IS NOT NULL AND l.locktype = 'relation' AND (
          l.mode = 'AccessExclusiveLock' OR (l.mode = 'ShareUpdateExclusiveLock' AND EXISTS (
              SELECT FROM pg_class c WHERE c.oid = w.oid AND c.relkind = 'p'))))
       OR (l.locktype = 'object' AND l.classid = 'pg_type'::regclass AND l.mode = 'ExclusiveLock'))
LIMIT 1
"""


def load_watched(
    connection: Connection,
    slot: Slot,
    token: PostgresToken,
    selection: Selection,
    *,
    diff: bool,
    known: Catalog | None = None,
) -> Catalog:
    """Return the current catalog of the tables in *token*: *known* itself when that is still right.

    Raises: TerminalRangefeedError when one of them can no longer be followed; HistoryLostError.
    """
    states = token.tables
    oids = [state.oid for state in states.values()]
    publication = slot.publication
    catalog = load_again(connection, known, publication=publication.name, oids=oids, nulls=publication.nulls)
    if catalog is not known:
        catalog = followed(connection, catalog, states)
        if known is not None:
            log_renamed(table for name, table in catalog.tables.items() if table.renamed != known.tables[name].renamed)
    for name in states if catalog is not known else catalog.keyless:
        table, state = catalog.tables[name], states[name]
        if table.gone:
            if selection.lists(name):
                raise TerminalRangefeedError(dropped(name, again=False))
            continue
        if table.root is not None:
            row: Any = connection.execute("SELECT relname::text FROM pg_class WHERE oid = %s", [table.root]).fetchone()
            now = f"{table.present}, a partition" if table.renamed else "a partition"
            entry = exclusion(table.name.schema, table.name.table)
            remedy = (
                f"run once without {name} in 'tables', and then list the partitioned table, which is then read again"
                if selection.lists(name)
                else f"add '{entry}' to 'tables', and list the partitioned table if no pattern matches it"
            )
            raise TerminalRangefeedError(
                f"table {name} became {now} of {row[0]}, so it has only some of the rows. To follow all partitions,"
                f" {remedy}; rows already at the destination are not deleted"
            )
        if not table.published:
            if slot.temporary:
                TemporaryObjects.of(slot)  # with the slot its publication is gone
            raise TerminalRangefeedError(
                f"table {name} is no longer in publication {slot.publication.name}, so changes to it may be lost. "
                f"{READ_ANEW}"
            )
        try:
            check_logged(table)
        except ConfigError as error:
            text = str(error).rstrip(";.")
            raise TerminalRangefeedError(f"{text}. Changes since then are lost. {READ_ANEW}") from None
        if not table.key and {column.name for column in table.columns}.issuperset(state.key):
            continue  # rows have their last key until there is one again
        try:
            check_key(table, diff=diff)
        except ConfigError as error:
            raise TerminalRangefeedError(str(error)) from None
    if catalog is not known:
        try:
            slot.publication.require(connection, [table for table in catalog.tables.values() if not table.gone])
        except ConfigError as error:
            raise TerminalRangefeedError(
                f"{str(error).rstrip(';.')}. Changes since the table was altered may be lost. {READ_ANEW}"
            ) from None
        require_unaltered(publication, catalog, token)
    return catalog


class WatchedCatalog:
    """The catalog as it was read last."""

    def __init__(self, slot: Slot, new_tables: NewTables, *, diff: bool) -> None:
        self._slot = slot
        self._new_tables = new_tables
        self._diff = diff
        self._catalog: Catalog | None = None
        self.types = TypeCatalog()
        self._versions: tuple[Catalog, Mapping[str, TableState], TypeCatalog, Versions] | None = None
        """Those that were made last, after what they were made of."""

    @property
    def catalog(self) -> Catalog:
        """What `refresh` has returned last. It was called before."""
        assert self._catalog is not None
        return self._catalog

    def refresh(self, connection: Connection, start: PostgresToken) -> Catalog:
        """Read the catalog again, and types before it: what is altered in between is then found before it is used."""
        known, selection = self._catalog, self._new_tables.selection
        while True:
            types = self.types if known is None else present_types(connection, known)
            catalog = load_watched(connection, self._slot, start, selection, diff=self._diff, known=known)
            if catalog is known:
                self.types, self._catalog = types.following(start.types), catalog
                return catalog
            known = catalog

    def read_once(self, connection: Connection, start: PostgresToken) -> Catalog:
        """Return the catalog, read now only if it was not before."""
        return self._catalog or self.refresh(connection, start)

    def versions(self, connection: Connection, states: Mapping[str, TableState]) -> Versions:
        """Return the versions for a log whose tables have the shapes of the catalog. They stay until one changes."""
        catalog = self.catalog
        if self._versions is None or self._versions[0] is not catalog or self._versions[1:3] != (states, self.types):
            made = Versions.of_catalog(connection, catalog, states, self.types)
            self._versions = catalog, states, self.types, made
        return self._versions[3]

    def altered(self, connection: Connection, start: PostgresToken) -> str | None:
        """Return what may be altered now, as resolved marks wait for it; None when nothing is."""
        return _altering(connection, start, self._catalog.composites if self._catalog else ())


def noted(connection: Connection, start: PostgresToken, catalog: Catalog) -> PostgresToken:
    """Return *start* with *catalog*. If it is a new one, tables have its shapes in the log from now on."""
    if catalog.fingerprint == start.catalog:
        return start
    settled = max(start.settled, newest(connection))
    return compared(replace(start, catalog=catalog.fingerprint, settled=settled), catalog)


def _altering(connection: Connection, token: PostgresToken, composites: Iterable[int]) -> str | None:
    """Return what may be altered at this moment, and by whom: a watched table, a partition, or a type. None if nothing.

    *composites* are the relations of composite types.

    Such a transaction can be committed in the log and not be visible yet, for as long as it waits for a synchronous
    standby. It holds its locks until it is visible. So when this returns None, the catalog that is read afterwards
    shows every change before any earlier end of the log. It takes no lock itself, and waits for none.
    """
    tables = array_text([*(state.oid for state in token.tables.values()), *composites])
    row = connection.execute(_ALTERING, {"tables": tables}, prepare=True).fetchone()
    if row is None:
        return None
    return f"{row[0]} is locked as if by ALTER TABLE, and may be changing: {row[1]} holds the lock"
