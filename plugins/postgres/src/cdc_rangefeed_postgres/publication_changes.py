"""Whether the publication was altered since it was last compared, also when it was restored meanwhile.

PostgreSQL decodes each change with the publication of its time, and the catalog has only the current one. So a token
has what publishes each table, with the transactions that wrote it:

    the publication's row    every ALTER PUBLICATION … SET, RENAME and OWNER replaces it
    its owner and when it was set, and whether it has generated columns    another one explains a new row
    the entries              the table's own, that of its schema with the one that put the table there, or all tables.
                             It is replaced for another filter or column list, and after DROP and ADD. Those of
                             other tables, VACUUM FULL, GRANT and new names of tables and schemas leave it as it is

As long as the row and one of the entries are there, no change was left out.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from cdc_core import TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.remedies import NEW_SLOT, READ_ANEW
from cdc_rangefeed_postgres.token import PostgresToken

_SHOWN = 5


def require_unaltered(publication: Publication, catalog: Catalog, token: PostgresToken) -> None:
    """Return when *publication* had every change of the tables of *token* since it was last compared.

    Tables that are not in *catalog* or not published are left to other checks. Raises: TerminalRangefeedError.
    """
    altered, entered = [], []
    for name, state in token.tables.items():
        table = catalog.tables.get(name)
        if table is None or table.oid != state.oid or table.gone or not table.published or not state.published:
            continue
        (row, may_differ, *entries), (row_now, may_differ_now, *entries_now) = state.published, table.publishing
        same = row.partition(" ")[0] == row_now.partition(" ")[0] and may_differ != may_differ_now
        if row != row_now and not same:
            altered.append(name)
        elif set(entries).isdisjoint(entries_now):
            entered.append(name)
    if altered:
        raise TerminalRangefeedError(
            f"publication {publication.name} was altered and restored, or dropped and created again, so changes to"
            f" {_tables(altered)} may be lost. {NEW_SLOT}"
        )
    if entered:
        raise TerminalRangefeedError(
            f"{_tables(entered)}: the entry in publication {publication.name} was replaced (dropped and added again, "
            f"or given another row filter or column list), so changes may be lost. {READ_ANEW}"
        )


def compared(token: PostgresToken, catalog: Catalog) -> PostgresToken:
    """Return *token* with what publishes its tables in *catalog*, after `require_unaltered`."""
    tables = {name: replace(state, published=catalog.tables[name].publishing) for name, state in token.tables.items()}
    return replace(token, tables=tables)


def uncompared(token: PostgresToken, tables: Container[str]) -> PostgresToken:
    """Return *token* without what publishes *tables*, before their entries are changed."""
    states = {name: replace(state, published=()) if name in tables else state for name, state in token.tables.items()}
    return replace(token, tables=states)


def _tables(names: list[str]) -> str:
    more = ", …" if len(names) > _SHOWN else ""
    return f"table{'s' if len(names) > 1 else ''} {', '.join(names[:_SHOWN])}{more}"
