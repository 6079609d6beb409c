"""The tables that a changefeed watches, checked against its token."""

from __future__ import annotations

from typing import Any

from cdc_core import ConfigError, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.catalog_queries import load_again
from cdc_rangefeed_postgres.checks import check_key, check_logged
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.members import dropped, followed, log_renamed
from cdc_rangefeed_postgres.publication_changes import require_unaltered
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.selection import Selection
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken

__all__ = ["load_watched"]


def load_watched(
    connection: Connection,
    slot: Slot,
    token: PostgresToken,
    selection: Selection,
    *,
    diff: bool,
    known: Catalog | None = None,
) -> Catalog:
    """Return the present catalog of the tables in *token*: *known* itself when that is still right.

    Raises: TerminalRangefeedError when one of them can no longer be followed.
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
            raise TerminalRangefeedError(
                f"table {name} became {table.present}, a partition of {row[0]}, so it has only a part of the rows. To "
                "follow all partitions, run once without it in 'tables', and then list the partitioned table: it is "
                "read anew, and rows that are at the destination are not deleted there"
            )
        if not table.published:
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
                f"{str(error).rstrip(';.')}. Changes since it was altered may be lost. {READ_ANEW}"
            ) from None
        require_unaltered(publication, catalog, token)
    return catalog
