"""Which tables a changefeed follows, and under which names.

A table keeps the name under which the changefeed began to follow it, and so its topic, when it is renamed: the token
has its oid. A table that came by a pattern and was dropped is followed until its log is delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc_core import ConfigError, RangefeedContext, TableName
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.catalog_queries import load_tables
from cdc_rangefeed_postgres.checks import check_tables, require_tables
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import qualified
from cdc_rangefeed_postgres.privileges import check_privileges
from cdc_rangefeed_postgres.publication import Publication
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.selection import Pattern, Selection, exclusion
from cdc_rangefeed_postgres.token import PostgresToken, TableState, is_intent

log = logging.getLogger(__name__)

# Waits for no lock, as the queries of the catalog.
_FIND = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname::text, c.relname::text) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
   OR (c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
       AND EXISTS (SELECT FROM unnest(%(in)s::text[], %(like)s::text[]) AS p(s, t)
                   WHERE n.nspname::text LIKE p.s AND c.relname::text LIKE p.t)
       AND NOT EXISTS (SELECT FROM unnest(%(not_in)s::text[], %(not_like)s::text[]) AS p(s, t)
                       WHERE n.nspname::text LIKE p.s AND c.relname::text LIKE p.t))
ORDER BY n.nspname, c.relname
"""


def find_tables(connection: Connection, selection: Selection) -> dict[str, int]:
    """Return the oids of the tables that are listed or match, by `qualified` name, as they are called now."""
    parameters = {
        "schemas": [schema for schema, _ in selection.names],
        "names": [name for _, name in selection.names],
        "in": [pattern.schema for pattern in selection.patterns],
        "like": [pattern.table for pattern in selection.patterns],
        "not_in": [pattern.schema for pattern in selection.exclusions],
        "not_like": [pattern.table for pattern in selection.exclusions],
    }
    return {qualified(schema, name): oid for oid, schema, name in connection.execute(_FIND, parameters)}


def followed_before(context: RangefeedContext) -> Mapping[str, TableState]:
    """Return the tables that the changefeed followed before this run."""
    saved = context.saved
    return {} if saved is None or is_intent(saved) else PostgresToken.from_json(saved).tables


def load_members(
    connection: Connection,
    publication: Publication,
    selection: Selection,
    states: Mapping[str, TableState],
    *,
    diff: bool,
) -> Catalog:
    """Return the tables to follow: those of *states* that are still wanted, and others that are listed or match.

    Without *states*, which is before the first start, every table that matches must be fit. Later ones that are not,
    or not in a publication that existed before, are left out. Raises: ConfigError.
    """
    found = find_tables(connection, selection)
    # A table that is listed under a new name is another table for its consumers, unless it took that of another one.
    listed = {oid: name for name, oid in found.items() if selection.lists(name) and name not in states}
    kept = {
        name: state for name, state in states.items() if selection.wants(name) and listed.get(state.oid, name) == name
    }
    catalog = load_tables(
        connection,
        publication=publication.name,
        oids={*found.values(), *(state.oid for state in kept.values())},
        nulls=publication.nulls,
    )
    tables = dict(followed(connection, catalog, kept).tables)
    oids = {state.oid for state in kept.values()}
    for name in kept:
        if tables[name].gone and selection.lists(name):
            raise ConfigError(dropped(name, again=name in found))
    for name, oid in found.items():
        table = catalog.by_oid.get(oid)
        if oid in oids or table is None:
            continue
        if name in tables:
            if not tables[name].gone:
                raise ConfigError(name_taken(tables[name]))
        elif selection.lists(name) or _is_fit(connection, publication, table, diff=diff, first=not states):
            tables[name] = table
    require_tables(connection, replace(catalog, tables=tables), selection.names)
    if not tables:
        texts = ", ".join(f"'{pattern.text}'" for pattern in selection.patterns)
        raise ConfigError(f"no table matches {texts}. Create one, or correct the pattern")
    return replace(catalog, tables=tables)


def unmatched(selection: Selection, catalog: Catalog) -> list[Pattern]:
    """Return the patterns that match no table of *catalog*."""
    names = [table.name for table in catalog.tables.values()]
    return [
        pattern for pattern in selection.patterns if not any(pattern.matches(name.schema, name.table) for name in names)
    ]


def present(connection: Connection, publication: Publication, states: Mapping[str, TableState]) -> Catalog:
    """Return the tables of *states*, by the names under which they are followed."""
    oids = [state.oid for state in states.values()]
    catalog = load_tables(connection, publication=publication.name, oids=oids, nulls=publication.nulls)
    return followed(connection, catalog, states)


def followed(connection: Connection, catalog: Catalog, states: Mapping[str, TableState]) -> Catalog:
    """Return the tables of *states* from *catalog*, by the names under which they are followed."""
    tables = {}
    for name, state in states.items():
        table = catalog.by_oid.get(state.oid)
        if table is None:
            tables[name] = _gone(TableName.parse(name, database=connection.info.dbname), state)
        elif table.name.qualified == name:
            tables[name] = table
        else:
            tables[name] = replace(table, name=TableName.parse(name, database=table.name.database), renamed=table.name)
    return replace(catalog, tables=tables)


def left_behind(connection: Connection, publication: Publication, token: PostgresToken) -> set[str]:
    """Return the tables of *token* that were dropped, and have nothing more in the log after it."""
    return gone_from(present(connection, publication, token.tables), token)


def gone_from(catalog: Catalog, token: PostgresToken) -> set[str]:
    """Return the tables of *token* that were dropped, and have nothing more in the log after it.

    That is known once a step has ended behind the end of the log at which the present *catalog* was found.
    """
    if catalog.fingerprint != token.catalog or token.lsn < token.settled:
        return set()
    return {name for name in token.tables if catalog.tables[name].gone}


def check_new_table(connection: Connection, publication: Publication, table: Table, *, diff: bool) -> None:
    """Return when a *table* that matches can be followed. Raises: ConfigError."""
    check_tables(connection, [table], diff=diff)
    check_privileges(connection, [table], publication, first=False)
    if publication.given:
        publication.require(connection, [table])
    else:
        publication.check_owner(connection, altered=True)


def log_renamed(tables: Iterable[Table]) -> None:
    """Say which of *tables* have another name than the one under which they are followed."""
    for table in tables:
        if table.renamed is not None:
            old, new = table.name.qualified, table.renamed.qualified
            log.info("table %s is now called %s; still following it under its old name", old, new)


def name_taken(table: Table) -> str:
    """Return the sentence about another table that has the name under which *table* is followed."""
    return (
        f"table {table.name} is not the table that the changefeed follows under this name, which is now called"
        f" {table.present}. To keep following {table.present}, rename the new table. To follow the new table instead,"
        f" run once without {table.name.qualified} in 'tables', and then list it again; rows already at the destination"
        " are not deleted"
    )


def dropped(name: str, *, again: bool) -> str:
    """Return the sentence about a listed table that was dropped, and perhaps created *again*."""
    if again:
        return f"table {name} was dropped and created again. {READ_ANEW}"
    return f"table {name} was dropped. To continue without it, remove it from 'tables'"


def _gone(name: TableName, state: TableState) -> Table:
    return Table(
        oid=state.oid,
        name=name,
        kind="",
        persistence="p",
        identity="d",
        root=None,
        published=True,
        stored_columns=False,
        all_columns=(),
        indexes=(),
        partitions=(),
    )


def _is_fit(connection: Connection, publication: Publication, table: Table, *, diff: bool, first: bool) -> bool:
    if publication.given and not table.published:
        return False
    try:
        if first:  # the privileges of all tables are checked at once
            check_tables(connection, [table], diff=diff)
        else:
            check_new_table(connection, publication, table, diff=diff)
    except ConfigError as error:
        if first:
            entry = exclusion(table.name.schema, table.name.table)
            raise ConfigError(
                f"{str(error).rstrip(';.')}; or exclude the table: add '{entry}' to 'tables'",
                repairable=error.repairable,
            ) from None
        return False
    return True
