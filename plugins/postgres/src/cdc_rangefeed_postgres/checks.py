"""Checks before the start. Each error names the statement that fixes it. Nothing is changed."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Sequence

from cdc_core import ConfigError, counted
from cdc_rangefeed_postgres.catalog import Catalog, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import qualified, quoted, quoted_table
from cdc_rangefeed_postgres.running_transactions import may_log_running_transactions
from cdc_rangefeed_postgres.standby import check_standby, is_standby

log = logging.getLogger(__name__)

_OLDEST = 140000
_FAILOVER = 170000
_FULL_WITHOUT_GENERATED = 180000
"""Since this version, a published table with REPLICA IDENTITY FULL and generated columns cannot be updated."""
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
    "i": "an index",
    "I": "an index",
}
_LEVELS = """
SELECT current_setting('wal_level'), current_setting('effective_wal_level', true), pg_is_in_recovery(),
       current_user::text
"""
_SLOTS = """
SELECT (SELECT count(*) FROM pg_replication_slots WHERE NOT (temporary AND slot_name ~ '_copy_[0-9a-f]{8}$')),
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int
"""
_LIMITED = "SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user AND rolconnlimit >= 0 AND NOT rolsuper"
_MIN_CONNECTIONS, _ENOUGH_CONNECTIONS = 5, 30
"""Of the driver, the planner, the coordinator, a task and the snapshot of a scan; of a few tasks side by side."""


def check_version(connection: Connection) -> None:
    """Raise ConfigError when the server is too old for changefeeds, and for the other checks."""
    if connection.info.server_version < _OLDEST:
        version = connection.info.server_version // 10000
        raise ConfigError(f"the server is PostgreSQL {version}, but changefeeds need 14 or newer. Upgrade it")


def logs_logically(level: str, effective: str | None, *, standby: bool) -> bool:
    """Return whether a server with the settings wal_level and effective_wal_level can decode, or will for a slot.

    From PostgreSQL 19 on, which has the second, a primary with wal_level = replica logs for decoding once a slot
    exists, and a standby decodes only if its primary does.
    """
    if effective is None:
        return level == "logical"
    return effective == "logical" or (level != "minimal" and not standby)


def check_server(connection: Connection, *, slot: bool, publication: bool, scan: bool, failover: bool) -> None:
    """Raise ConfigError when the server cannot do logical decoding.

    *slot* and *publication*: whether one will be created. *scan*: the initial scan has not begun. A scan that has begun
    can wait for a free slot. Logs when no slot is left for reading in overlap, see `SlotCopy`.
    """
    if failover and connection.info.server_version < _FAILOVER:
        version = connection.info.server_version // 10000
        raise ConfigError(
            f"option 'failover' needs PostgreSQL 17 or newer, but the server is PostgreSQL {version}. Remove the option"
        )
    row = connection.execute(_LEVELS).fetchone()
    assert row is not None
    level, effective, standby, role = row
    if not logs_logically(level, effective, standby=standby):
        raise ConfigError(
            f"the server's wal_level is {level}, but changefeeds need logical. Run ALTER SYSTEM SET wal_level = "
            "'logical'; and restart the server"
        )
    if is_standby(connection):
        check_standby(connection, failover=failover)
    if may_log_running_transactions(connection) is False:
        log.info(
            "role %s may not execute pg_log_standby_snapshot(), so a busy server may decode part of the log again at"
            " each step. Run GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO %s;",
            role,
            quoted(role),
        )
    limited = connection.execute(_LIMITED).fetchone()
    if limited is not None and limited[0] < _MIN_CONNECTIONS:
        log.info(
            "role %s may have only %s, but a changefeed needs at least %d. Run ALTER ROLE %s CONNECTION LIMIT %d;",
            role,
            counted(limited[0], "connection"),
            _MIN_CONNECTIONS,
            quoted(role),
            _ENOUGH_CONNECTIONS,
        )
    if publication:
        check_publisher(connection)
    row = connection.execute(_SLOTS).fetchone()
    assert row is not None
    slots, max_slots, senders, max_senders = row
    needed = (1 if slot else 0) + (1 if scan else 0)
    if slots + needed > max_slots:
        raise ConfigError(
            f"the server has {counted(max_slots - slots, 'free replication slot')}, but the changefeed needs {needed}."
            f" Run ALTER SYSTEM SET max_replication_slots = {max_slots + 10}; and restart the server, or drop unused"
            " slots",
            repairable=True,
        )
    if slots + needed == max_slots:
        log.info(
            "the server has no free replication slot besides those that the changefeed needs, but reading a large step"
            " quickly needs one more for a short time. Run ALTER SYSTEM SET max_replication_slots = %d; and restart"
            " the server",
            max_slots + 10,
        )
    if scan and senders + 1 > max_senders:
        raise ConfigError(
            f"all {max_senders} WAL senders of the server are in use, but the initial scan needs one more. Run ALTER"
            f" SYSTEM SET max_wal_senders = {max_senders + 10}; and restart the server",
            repairable=True,
        )


def check_publisher(connection: Connection) -> None:
    """Raise ConfigError when the server cannot have a publication of the changefeed's own."""
    if is_standby(connection):
        raise ConfigError(
            "the server is a standby and cannot create a publication. Create a publication on the primary and set"
            " publication_name to its name, or connect to the primary"
        )


def require_tables(connection: Connection, catalog: Catalog, names: Sequence[tuple[str, str]]) -> list[Table]:
    """Return the tables *names*, in that order. Raises: ConfigError for one that does not exist."""
    found = []
    for schema, name in names:
        table = catalog.tables.get(qualified(schema, name))
        if table is None:
            text = qualified(schema, name)
            raise ConfigError(f"table {text} does not exist{_suggestion(connection, schema, name)}")
        found.append(table)
    return found


def check_tables(connection: Connection, tables: Sequence[Table], *, diff: bool) -> None:
    """Raise ConfigError for a table that cannot be watched, whatever the role may do."""
    for table in tables:
        _check_kind(table, tables)
        check_key(table, diff=diff)
        _check_generated(connection, table, diff=diff)


def check_key(table: Table, *, diff: bool) -> None:
    """Raise ConfigError when the log does not identify the table's rows, or does not have the old rows for *diff*."""
    name = table.name
    if not table.key:
        raise ConfigError(
            f"table {name} has no primary key, so its changes cannot be identified. Run ALTER TABLE {table.sql} ADD "
            f"PRIMARY KEY (…); or, with a unique index over NOT NULL columns, ALTER TABLE {table.sql} REPLICA IDENTITY "
            "USING INDEX …;"
        )
    published = {column.name for column in table.columns}
    for column in table.key:
        if column not in published:
            raise ConfigError(
                f"table {name} has the generated column {column} in its key, but that column is not in the log. Use "
                f"another key: run ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX …;"
            )
    for leaf in table.leaves:
        _check_identity(table, leaf, diff=diff)
    if table.kind == "p" and (diff or table.deferrable) and table.identity != "f":
        raise ConfigError(
            f"table {name} does not have REPLICA IDENTITY FULL, but the log marks old rows of its partitions according"
            f" to the identity of {name}. Run ALTER TABLE {table.sql} REPLICA IDENTITY FULL;"
        )


def _check_identity(table: Table, leaf: Leaf, *, diff: bool) -> None:
    where = f"table {leaf.qualified}" + ("" if leaf.oid == table.oid else f", a partition of {table.name},")
    if diff and leaf.identity != "f":
        raise ConfigError(
            f"{where} does not log old rows, which option 'diff' and cdc_prev in a query need. Run ALTER TABLE"
            f" {leaf.sql} REPLICA IDENTITY FULL;"
        )
    if leaf.identity == "n":
        raise ConfigError(
            f"{where} has REPLICA IDENTITY NOTHING, so its updates and deletes cannot be published. Run ALTER TABLE "
            f"{leaf.sql} REPLICA IDENTITY DEFAULT;"
        )
    if table.kind == "p" and leaf.identity == "i":
        raise ConfigError(
            f"{where} has REPLICA IDENTITY USING INDEX, but the key of a partitioned table is its primary key. "
            f"Run ALTER TABLE {leaf.sql} REPLICA IDENTITY DEFAULT;"
        )
    if leaf.identity == "d" and table.deferrable:
        raise ConfigError(
            f"{where} has a deferrable primary key, so its updates and deletes cannot be published. Run ALTER "
            f"TABLE {leaf.sql} REPLICA IDENTITY FULL;"
        )


def _check_generated(connection: Connection, table: Table, *, diff: bool) -> None:
    """Raise ConfigError when the publication would make the server refuse writes to the table."""
    published = {column.name for column in table.columns}
    generated = [column.name for column in table.all_columns if column.name not in published]
    full = [leaf.sql for leaf in table.leaves if leaf.identity == "f"]
    if connection.info.server_version >= _FULL_WITHOUT_GENERATED and generated and full:
        remove = " and remove option 'diff', or cdc_prev from the query" if diff else ""
        raise ConfigError(
            f"table {table.name} has REPLICA IDENTITY FULL and the generated column {generated[0]}, which is not"
            " published, so the server would refuse all updates and deletes once the table is published. Run ALTER"
            f" TABLE {full[0]} REPLICA IDENTITY DEFAULT;{remove}"
        )


def _check_kind(table: Table, tables: Sequence[Table]) -> None:
    name = table.name
    if table.kind not in "rp":
        raise ConfigError(
            f"{name} is {_KINDS.get(table.kind, 'not a table')}, but changefeeds can only watch tables. List tables"
            " only"
        )
    if name.schema in ("pg_catalog", "information_schema"):
        raise ConfigError(f"table {name} is a system table and cannot be published. List your own tables only")
    if table.root is not None:
        root = next((other for other in tables if other.oid == table.root), None)
        if root is not None:
            raise ConfigError(
                f"table {name} is a partition of {root.name}, which is also listed and includes its partitions. Remove"
                f" {name}"
            )
        raise ConfigError(f"table {name} is a partition. List the root of the partitioned table instead")
    check_logged(table)


def check_logged(table: Table) -> None:
    """Raise ConfigError when rows of the table, or of one of its partitions, are not in this server's log."""
    name = table.name
    for leaf in table.leaves:
        where = f"table {leaf.qualified}" + ("" if leaf.oid == table.oid else f", a partition of {name},")
        if leaf.kind == "f":
            raise ConfigError(
                f"{where} is a foreign table, so its changes are not in this server's log. Detach the partition"
            )
        if leaf.persistence == "u":
            raise ConfigError(
                f"{where} is unlogged, so its changes are not in the log. Run ALTER TABLE {leaf.sql} SET LOGGED;"
            )
        if leaf.persistence == "t":
            raise ConfigError(f"{where} is temporary, so its changes are not in the log. List a permanent table")


def _suggestion(connection: Connection, schema: str, name: str) -> str:
    known = list(_user_tables(connection))
    folded = [found for found in known if [part.lower() for part in found] == [schema.lower(), name.lower()]]
    elsewhere = [found for found in known if found[1] == name]
    here = {found[1]: found for found in known if found[0] == schema}
    close = [here[text] for text in difflib.get_close_matches(name, here, n=1, cutoff=0.6)]
    for found in [*folded, *elsewhere, *close]:
        plain = all(part == part.lower() and part.isidentifier() for part in found)
        return f"; did you mean {'.'.join(found) if plain else quoted_table(*found)}?"
    return f" in database {connection.info.dbname}. Create it, or correct the name or the source URI"


def _user_tables(connection: Connection) -> Iterator[tuple[str, str]]:
    yield from connection.execute(
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1, 2"
    )
