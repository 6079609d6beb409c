"""The row filters that a changefeed sets in its publication.

A filter leaves out only changes that the query does not deliver. So a later start may remove it without a loss,
although the log before is still decoded with it: PostgreSQL decodes each change with the publication of its time.
A table whose filter leaves out what is wanted now is read again. So is one whose past filter does, for as long as the
slot may have changes of before its removal: also those of a transaction that was open then, and ended later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from cdc_core import ConfigError, RangefeedContext, RetryableRangefeedError, TerminalRangefeedError, Token
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.filter_watch import attributes_of, compared, filtered_by, filters_in, is_known, with_filters
from cdc_rangefeed_postgres.filtered import NO_FILTER, Filtered, PastFilter
from cdc_rangefeed_postgres.lsn import newest
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.publication_changes import uncompared
from cdc_rangefeed_postgres.row_filter import RowFilter, row_filter
from cdc_rangefeed_postgres.standby import is_standby
from cdc_rangefeed_postgres.token import PostgresToken, TableState
from cdc_rangefeed_postgres.versions import first_version, present_types

_SINCE = 150000


def check_row_filter(
    connection: Connection, context: RangefeedContext, publication: Publication, *, endpoint: bool
) -> None:
    """Return when the publication can have row filters, or need not have any. Raises: ConfigError.

    *endpoint*: whether *connection* is to an endpoint, whose publication is on the primary.
    """
    if not context.options.row_filter:
        return
    if connection.info.server_version < _SINCE:
        version = connection.info.server_version // 10000
        raise ConfigError(
            f"option 'row_filter' needs PostgreSQL 15 or newer, but the server is PostgreSQL {version}. Remove the "
            "option"
        )
    if not endpoint and is_standby(connection):
        raise ConfigError(
            "option 'row_filter' sets filters in the changefeed's own publication, which only the primary can create,"
            " but the source is a standby. Remove the option, or make the primary the source and the standby one of its"
            " endpoints"
        )
    if publication.given:
        raise ConfigError(
            f"option 'row_filter' sets filters in the changefeed's own publication, but publication "
            f"{publication.name} existed before the changefeed, which never alters it. Remove the option, or "
            "publication_name"
        )


class RowFilters:
    """Sets the row filters. Used by the driver."""

    def __init__(self, context: RangefeedContext, publication: Publication) -> None:
        self._context = context
        self._publication = publication
        self._on: bool = context.options.row_filter

    def possible(self, connection: Connection, catalog: Catalog) -> dict[str, RowFilter]:
        """Return the filter that each table can have, whether or not the option is set."""
        tables = {name: table for name, table in catalog.tables.items() if table.key and not table.gone}
        attributes, types = attributes_of(connection, tables.values()), present_types(connection, catalog)
        found = {}
        for name, table in tables.items():
            version = first_version(table, types)
            collations = {attribute.name: attribute.collation for attribute in attributes[table.oid]}
            found[name] = row_filter(version, self._context.restriction(version.schema), collations)
        return found

    def apply(self, publisher: Connection, connection: Connection, catalog: Catalog) -> dict[str, Filtered]:
        """Filter the tables of *catalog*, which were published just now, and return what the token says of that.

        For a transaction of *publisher*. A filter that a crashed attempt left is removed.
        Raises: RetryableRangefeedError when a table was altered meanwhile.
        """
        possible = self.possible(connection, catalog) if self._on else {}
        wanted = {name: found for name, found in possible.items() if found.where}
        present = filters_in(publisher, self._publication, catalog.tables.values())
        for name, table in catalog.tables.items():
            if name in wanted or present.get(table.oid, NO_FILTER) != NO_FILTER:
                self._publication.filter(publisher, table, wanted[name].where if name in wanted else ())
        return self._recorded(publisher, catalog.tables, wanted)

    def resumed(
        self,
        connection: Connection,
        catalog: Catalog,
        saved: PostgresToken,
        save: Callable[[Token], None],
        publishing: Callable[[], AbstractContextManager[Connection]],
        *,
        restart: int,
    ) -> tuple[PostgresToken, set[str]]:
        """Return *saved* with the filters that the tables have now, and the tables that have to be read again.

        *catalog* is the current one. Before a filter is changed, *save* gets a token that allows both filters. If
        filters do not mean what they did, nothing is changed: `FilterWatch` says so. *restart* is where the slot begins
        to decode: it has no change of before.
        """
        unfiltered = all(state.filtered is None and state.past_filter is None for state in saved.tables.values())
        if self._publication.given or (unfiltered and not self._on):
            return saved, set()
        tables = {name: table for name, table in catalog.tables.items() if is_known(table, saved.tables.get(name))}
        possible = self.possible(connection, replace(catalog, tables=tables))
        wanted, again = {}, set()
        for name, most in possible.items():
            before, found = saved.tables[name].filtered, most if self._on else RowFilter()
            if not _left_out(saved.tables[name], restart) <= set(most.where):
                again.add(name)
            if before is None and not found.where:
                continue
            if before is None or before.where != found.where or len(before.found) > 1:
                wanted[name] = found
        if not wanted:
            return _with_past(saved, set(), again, restart), again
        try:
            saved = compared(connection, self._publication, catalog, saved)
        except TerminalRangefeedError:
            return saved, set()
        saved = uncompared(saved, wanted)
        with publishing() as publisher:
            with publisher.transaction():
                for name, found in wanted.items():
                    self._publication.filter(publisher, tables[name], found.where)
                now = self._recorded(publisher, tables, wanted)
                attributes = attributes_of(publisher, tables.values())
                # Once the transaction is committed, this attempt may die before it saves more.
                meanwhile = {
                    name: filtered_by(*_either(saved.tables[name].filtered, after), attributes[tables[name].oid])
                    for name, after in now.items()
                }
                save(with_filters(saved, meanwhile).to_json())
            until = newest(publisher)
        removed = {name for name, found in wanted.items() if not found.where}
        saved = _with_past(saved, removed, again, restart, until=until)
        return with_filters(saved, {name: None if name in removed else now[name] for name in wanted}), again

    def _recorded(
        self, publisher: Connection, tables: Mapping[str, Table], filters: Mapping[str, RowFilter]
    ) -> dict[str, Filtered]:
        """Return what the token says of *filters*, which were set in this transaction."""
        changed = [tables[name] for name in filters]
        attributes, codes = attributes_of(publisher, changed), filters_in(publisher, self._publication, changed)
        result = {}
        for name, found in filters.items():
            oid = tables[name].oid
            types = {attribute.name: attribute.type for attribute in attributes[oid]}
            if any(types.get(column) != type_ for column, type_ in found.columns):
                raise RetryableRangefeedError(
                    f"table {name} was altered while its row filter was being set; setting the filter again",
                    outage=False,
                )
            columns = tuple(column for column, _ in found.columns)
            result[name] = filtered_by(found.where, columns, (codes[oid],), attributes[oid])
        return result


def _either(before: Filtered | None, after: Filtered) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return conditions, columns and codes of both."""
    where, columns, found = ((), (), (NO_FILTER,)) if before is None else (before.where, before.columns, before.found)
    both = ((*where, *after.where), (*columns, *after.columns), (*found, *after.found))
    first, second, third = (tuple(dict.fromkeys(values)) for values in both)
    return first, second, third


def _left_out(state: TableState, restart: int) -> set[str]:
    """Return the conditions of the filters with which changes that the slot may have are decoded."""
    past = state.past_filter if state.past_filter is not None and restart < state.past_filter.until else None
    return {condition for each in (state.filtered, past) if each is not None for condition in each.where}


def _with_past(
    saved: PostgresToken, removed: set[str], again: set[str], restart: int, *, until: int = 0
) -> PostgresToken:
    """Return *saved* with the past filters that are still to be heeded, and those of *removed* up to *until*.

    None of the tables *again*: they are read by a later snapshot, with the query of that time.
    """

    def past(name: str, state: TableState) -> PastFilter | None:
        if name in again:
            return None
        if name in removed and state.filtered is not None:
            return PastFilter(where=state.filtered.where, until=until)
        return state.past_filter if state.past_filter is not None and restart < state.past_filter.until else None

    tables = {name: replace(state, past_filter=past(name, state)) for name, state in saved.tables.items()}
    return replace(saved, tables=tables)
