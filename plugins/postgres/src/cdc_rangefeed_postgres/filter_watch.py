"""Whether the row filters of the publication still mean what the query means.

PostgreSQL keeps a filter with the numbers of columns, and a query means their names: while two columns have swapped
their names, it leaves out rows that the query delivers, and the log shows no trace of them. So the token has what the
catalog says of the columns, and each new catalog is compared with it. While a column has another name, and a second
column has its name, both rows of pg_attribute are written. When only one was, as by GRANT or SET STATISTICS, nothing
was left out.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_core import RestartError, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.filtered import NO_FILTER, Filtered
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.token import PostgresToken, TableState
from cdc_rangefeed_postgres.value_types import code_of

# The text of an expression, as by pg_get_expr, waits for a lock on its table; its tree does not. A filter that is
# altered and set again as it was has another row in pg_publication_rel.
_FOUND = """
SELECT r.prrelid::bigint, coalesce(r.oid || ':' || hashtextextended(to_jsonb(r) ->> 'prqual', 0), '')
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = ANY(%s::oid[])
"""
_ATTRIBUTES = """
SELECT attrelid::bigint, attnum, attname::text, atttypid::bigint, attcollation::bigint, attisdropped, xmin::text
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 ORDER BY attrelid, attnum
"""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A row of pg_attribute."""

    number: int
    name: str
    type: int
    collation: int
    dropped: bool
    writer: str


def filtered_by(
    where: tuple[str, ...], columns: tuple[str, ...], found: tuple[str, ...], attributes: Sequence[Attribute]
) -> Filtered:
    """Return a filter as a token has it, with the present *attributes* of its table."""
    mine = [attribute for attribute in attributes if attribute.name in columns]
    others = [attribute for attribute in attributes if attribute.name not in columns]
    return Filtered(
        where=where,
        columns=columns,
        found=found,
        shape=_code((attribute.number, attribute.name, attribute.type) for attribute in mine),
        writers=tuple(code_of(attribute.writer) for attribute in mine),
        others=_code((attribute.number, attribute.writer) for attribute in others),
    )


def attributes_of(connection: Connection, tables: Iterable[Table]) -> dict[int, list[Attribute]]:
    """Return the attributes of each of *tables* by number, dropped ones included."""
    found: dict[int, list[Attribute]] = {table.oid: [] for table in tables}
    for oid, *attribute in connection.execute(_ATTRIBUTES, [list(found)]):
        found[oid].append(Attribute(*attribute))
    return found


def filters_in(connection: Connection, publication: Publication, tables: Iterable[Table]) -> dict[int, str]:
    """Return a code for the filter of each of *tables* that is in the publication by itself."""
    return dict(connection.execute(_FOUND, [publication.name, [table.oid for table in tables]]).fetchall())


def _code(parts: Iterable[tuple[object, ...]]) -> str:
    return code_of(repr(list(parts)))


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
                raise RestartError(
                    f"table {name}: its row filter is being changed, because its key has different columns"
                )
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
            raise _lost(name, f"columns of its row filter ({columns}) may have been renamed and renamed back")
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
