"""Whether the row filters of the publication still mean what the query means.

PostgreSQL keeps a filter with the numbers of columns, and a query means their names: while two columns have swapped
their names, it leaves out rows that the query delivers, and the log shows no trace of them. So the token has what the
catalog says of the columns, and each new catalog is compared with it. While a column has another name, and a second
column has its name, both rows of pg_attribute are written. When only one was, as by GRANT or SET STATISTICS, nothing
was left out.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace

from cdc_core import RestartError, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.filter_catalog import attributes_of, filtered_by, filters_in
from cdc_rangefeed_postgres.filtered import NO_FILTER, Filtered
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.token import PostgresToken, TableState

__all__ = ["FilterWatch", "compared", "is_known", "with_filters"]


class FilterWatch:
    """Compares the filters with each new catalog. Used by the planner."""

    def __init__(self, publication: Publication) -> None:
        self._publication = publication
        self._catalog: Catalog | None = None
        self._known: list[dict[str, Filtered | None]] = []

    def compared(self, connection: Connection, catalog: Catalog, token: PostgresToken) -> PostgresToken:
        """Return *token* with what the catalog says of the filters now.

        Raises: TerminalRangefeedError when a filter may have left out what a query delivers. RestartError when a
        filter has to be changed, because its columns are no longer in the key: PostgreSQL refuses updates then.
        """
        if self._publication.given:
            return token
        before = {name: state.filtered for name, state in token.tables.items()}
        if catalog is self._catalog and before in self._known:
            return with_filters(token, self._known[-1])
        after = compared(connection, self._publication, catalog, token)
        for name, state in after.tables.items():
            key = catalog.tables[name].key
            if state.filtered is not None and key and not set(state.filtered.columns) <= set(key):
                raise RestartError(f"table {name}: its row filter is changed, as its key has other columns")
        self._catalog = catalog
        self._known = [before, {name: state.filtered for name, state in after.tables.items()}]
        return after


def compared(connection: Connection, publication: Publication, catalog: Catalog, token: PostgresToken) -> PostgresToken:
    """Return *token* with what the catalog says of the filters now. Raises: as `FilterWatch.compared`."""
    tables = {name: table for name, table in catalog.tables.items() if is_known(table, token.tables.get(name))}
    codes = filters_in(connection, publication, tables.values())
    filtered = [table for name, table in tables.items() if token.tables[name].filtered is not None]
    attributes = attributes_of(connection, filtered) if filtered else {}
    changed = {}
    for name, table in tables.items():
        before = token.tables[name].filtered
        if codes.get(table.oid, NO_FILTER) not in (before.found if before is not None else (NO_FILTER,)):
            raise _lost(name, f"its row filter in publication {publication.name} was altered")
        if before is None:
            continue
        after = filtered_by(before.where, before.columns, before.found, attributes[table.oid])
        columns = ", ".join(before.columns)
        if after.shape != before.shape:
            raise _lost(name, f"columns of its row filter ({columns}) were renamed or replaced")
        written = sum(map(operator.ne, after.writers, before.writers))
        if written > 1 or (written and after.others != before.others):
            raise _lost(name, f"columns of its row filter ({columns}) may have been renamed and back")
        changed[name] = after
    return with_filters(token, changed)


def is_known(table: Table, state: TableState | None) -> bool:
    """Return whether *table* is that of *state*, still there, and published."""
    return state is not None and state.oid == table.oid and not table.gone and table.published


def with_filters(token: PostgresToken, filtered: Mapping[str, Filtered | None]) -> PostgresToken:
    """Return *token* with these filters, by table."""
    tables = {
        name: replace(state, filtered=filtered[name]) if name in filtered else state
        for name, state in token.tables.items()
    }
    return replace(token, tables=tables)


def _lost(name: str, what: str) -> TerminalRangefeedError:
    return TerminalRangefeedError(f"table {name}: {what}, so changes since then may be lost. {READ_ANEW}")
