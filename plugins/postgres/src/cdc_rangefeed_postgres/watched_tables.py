"""The tables that a changefeed watches, checked against its token."""

from __future__ import annotations

from typing import Any

from cdc_core import ConfigError, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog, load_again
from cdc_rangefeed_postgres.checks import check_key
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken

__all__ = ["load_watched"]


def load_watched(
    connection: Connection, slot: Slot, token: PostgresToken, *, diff: bool, known: Catalog | None = None
) -> Catalog:
    """Return the present catalog of the tables in *token*: *known* itself when that is still right.

    Raises: TerminalRangefeedError when one of them can no longer be followed.
    """
    states = token.tables
    oids = [state.oid for state in states.values()]
    publication = slot.publication
    catalog = load_again(connection, known, publication=publication.name, oids=oids, nulls=publication.nulls)
    for name, state in states.items():
        table = catalog.by_oid.get(state.oid)
        if table is None:
            raise TerminalRangefeedError(f"table {name} was dropped. To continue without it, remove it from 'tables'")
        if table.root is not None:
            row: Any = connection.execute("SELECT relname::text FROM pg_class WHERE oid = %s", [table.root]).fetchone()
            raise TerminalRangefeedError(
                f"table {name} became {table.name}, a partition of {row[0]}, so it has only a part of the rows. To "
                "follow all partitions, run once without it in 'tables', and then list the partitioned table: it is "
                "read anew, and rows that are at the destination are not deleted there"
            )
        if table.name.qualified != name:
            raise TerminalRangefeedError(
                f"table {name} was renamed to {table.name}. Rename it back, or list it in 'tables' under its new name: "
                "then it is read anew, and its topic has the new name"
            )
        if not table.published:
            raise TerminalRangefeedError(
                f"table {name} is no longer in publication {slot.publication.name}, so changes to it may be lost. "
                f"{READ_ANEW}"
            )
        if table.key != state.key:
            raise TerminalRangefeedError(
                f"table {name}: the key changed from ({', '.join(state.key)}) to ({', '.join(table.key)}), so old and "
                f"new changes of a row have different keys. Change it back. {READ_ANEW}"
            )
        try:
            check_key(table, diff=diff)
        except ConfigError as error:
            raise TerminalRangefeedError(str(error)) from None
    if slot.publication.given and catalog is not known:
        try:
            slot.publication.require(connection, catalog.tables.values())
        except ConfigError as error:
            raise TerminalRangefeedError(
                f"{str(error).rstrip(';.')}. Changes since it was altered may be lost. {READ_ANEW}"
            ) from None
    return catalog
