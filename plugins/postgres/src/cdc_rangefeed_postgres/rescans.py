"""Tables, and parts of tables, that are read again because someone asked for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import psycopg

from cdc_core import ConfigError, Rescan, counted, did_you_mean
from cdc_rangefeed_postgres.blocks import first_parts, survey
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.client_errors import text_of
from cdc_rangefeed_postgres.connection import Connection, set_lock_timeout
from cdc_rangefeed_postgres.token import PostgresToken, Scan

log = logging.getLogger(__name__)

# A text that has no closing bracket too many in either form is one expression, whatever it contains.
_FORMS = ("SELECT ARRAY[\n{}\n] FROM {} AS l LIMIT 0", "SELECT FROM {1} AS l WHERE (\n{0}\n) LIMIT 0")


def check_rescan(connection: Connection, catalog: Catalog, rescan: Rescan, *, lock_timeout_s: float) -> None:
    """Return when *rescan* is of a table in *catalog*, and the server can evaluate its predicate. Raises: ConfigError.

    The predicate is only planned, in a transaction that may not write, and in a form that holds no second statement.
    """
    tables = {table.name.full: table for table in catalog.tables.values() if not table.gone}
    if rescan.table is not None and rescan.table not in tables:
        raise ConfigError(f"table {rescan.table} is not watched{did_you_mean(rescan.table, tables)}")
    if rescan.table is None or rescan.where is None:
        return
    table = tables[rescan.table]
    set_lock_timeout(connection, lock_timeout_s)
    try:
        for form in _FORMS:
            with connection.transaction(force_rollback=True):
                connection.execute("SET TRANSACTION READ ONLY")
                # A binary result makes it a prepared statement, of which there is one at a time.
                connection.execute(f"EXPLAIN {form.format(rescan.where, table.sql)}", binary=True)
    except psycopg.errors.LockNotAvailable:
        raise ConfigError(f"table {table.name} is locked, so the predicate cannot be checked. Try again") from None
    except psycopg.Error as error:
        raise ConfigError(
            f"table {table.name}: PostgreSQL refuses the predicate {rescan.where!r}: {text_of(error)}. Write a "
            "condition on the table's columns, such as region = 'eu', and qualify names outside pg_catalog with "
            "their schema"
        ) from None


def with_rescans(
    connection: Connection, catalog: Catalog, token: PostgresToken, rescans: Sequence[Rescan]
) -> PostgresToken:
    """Return *token* with the scan of what *rescans* ask for. Tables that are not in it are left out."""
    present = [table for name, table in catalog.tables.items() if name in token.tables and not table.gone]
    watched = {table.name.full: table for table in present}
    for rescan in rescans:
        if rescan.table is not None and rescan.table not in watched:
            log.warning("table %s is no longer watched, so its rescan is dropped", rescan.table)
            continue
        tables = list(watched.values()) if rescan.table is None else [watched[rescan.table]]
        whole = {table.name.qualified for table in tables} if rescan.where is None else ()
        token = token.scanning(whole, _scan(connection, tables, token.scan, where=rescan.where))
    return token


def _scan(connection: Connection, tables: Sequence[Table], scan: Scan | None, *, where: str | None) -> Scan | None:
    """Return *scan* with the rows of *tables* that *where* selects; a scan of all of a table takes that of parts in."""
    leaves = {leaf.oid for table in tables for leaf in table.leaves}
    parts = tuple(replace(part, where=where) for part in first_parts(tables, survey(connection, list(leaves))))
    log.info(
        "reading again: %s%s (%s)",
        ", ".join(table.name.qualified for table in tables),
        "" if where is None else f" where {where}",
        counted(sum(part.blocks for part in parts), "block"),
    )
    if not parts:
        return scan
    return (scan or Scan(parts=())).with_parts(parts, instead_of=leaves if where is None else ())
