"""The catalog of the watched tables: read again for each step, with the types that their columns have had."""

from __future__ import annotations

from dataclasses import replace

from cdc_rangefeed_postgres.boundaries import altering
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.log_position import newest
from cdc_rangefeed_postgres.new_tables import NewTables
from cdc_rangefeed_postgres.publication_changes import compared
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken
from cdc_rangefeed_postgres.types import TypeCatalog
from cdc_rangefeed_postgres.versions import present_types
from cdc_rangefeed_postgres.watched_tables import load_watched

__all__ = ["WatchedCatalog", "noted"]


class WatchedCatalog:
    """The catalog as it was read last."""

    def __init__(self, slot: Slot, new_tables: NewTables, *, diff: bool) -> None:
        self._slot = slot
        self._new_tables = new_tables
        self._diff = diff
        self._catalog: Catalog | None = None
        self.types = TypeCatalog()

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

    def altered(self, connection: Connection, start: PostgresToken) -> str | None:
        """Return what may be altered now, as resolved marks wait for it; None when nothing is."""
        return altering(connection, start, self._catalog.composites if self._catalog else ())


def noted(connection: Connection, start: PostgresToken, catalog: Catalog) -> PostgresToken:
    """Return *start* with *catalog*. If it is a new one, tables have its shapes in the log from now on."""
    if catalog.fingerprint == start.catalog:
        return start
    settled = max(start.settled, newest(connection))
    return compared(replace(start, catalog=catalog.fingerprint, settled=settled), catalog)
