"""The privileges of the role. All that are missing are named at once, with statements that grant no more than them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdc_core import ConfigError
from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import given_name, quoted
from cdc_rangefeed_postgres.publication import Publication, creation

_REPLICATION_ROLES = ["rds_replication", "azure_replication", "cloudsqlreplication"]
_ROLE = """
SELECT current_user::text,
       r.rolreplication OR r.rolsuper OR EXISTS (
           SELECT FROM pg_roles m WHERE m.rolname = ANY(%s::name[]) AND pg_has_role(r.oid, m.oid, 'MEMBER')),
       current_database()::text, has_database_privilege(current_database(), 'CREATE')
FROM pg_roles r WHERE r.rolname = current_user
"""
_TABLES = """
SELECT c.oid::bigint, n.nspname::text, has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
       pg_has_role(c.relowner, 'USAGE'), row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::oid[]) ORDER BY c.oid
"""


def check_privileges(connection: Connection, tables: Sequence[Table], publication: Publication, *, first: bool) -> None:
    """Raise ConfigError when the role may not watch *tables*, with the statement for each privilege that it lacks.

    *first*: whether a publication of the changefeed's own will be created; later, tables are added to it. Only the
    owner of a table can do either. An owner, such as a superuser, may do far more than a changefeed needs, so the
    remedy is a statement for the owner, and not membership in its role.
    """
    row = connection.execute(_ROLE, [_REPLICATION_ROLES]).fetchone()
    assert row is not None
    name, replication, database, create = row
    role = quoted(name)
    statements = {table.oid: table.sql for table in tables}
    statements |= {leaf.oid: leaf.sql for table in tables for leaf in table.leaves}
    found = {oid: rest for oid, *rest in connection.execute(_TABLES, [list(statements)])}
    dropped = [table for table in tables if table.oid not in found]
    if dropped:
        raise ConfigError(f"{_shown(dropped)} was dropped during the check")
    hidden = dict.fromkeys(schema for schema, usage, *_ in found.values() if not usage)
    unread = {oid for oid, (_, _, select, *_) in found.items() if not select}
    secured = {oid for oid, (*_, security) in found.items() if security}
    joining = [] if publication.given else [table for table in tables if not table.published]
    foreign = [table for table in joining if not found[table.oid][3]]

    missing = {}
    if not replication:
        missing["use replication"] = f"ALTER ROLE {role} REPLICATION;"
    if hidden:
        listed = ", ".join(map(quoted, hidden))
        missing[f"use schema {', '.join(hidden)}"] = f"GRANT USAGE ON SCHEMA {listed} TO {role};"
    if unread:
        shown = _shown(table for table in tables if not unread.isdisjoint(_oids(table)))
        listed = ", ".join(sql for oid, sql in statements.items() if oid in unread)
        missing[f"read {shown}"] = f"GRANT SELECT ON {listed} TO {role};"
    if secured:
        shown = _shown(table for table in tables if not secured.isdisjoint(_oids(table)))
        missing[f"bypass the row-level security of {shown}, which would hide rows"] = f"ALTER ROLE {role} BYPASSRLS;"
    advice = "Run"
    if foreign:
        shown = f"publish {_shown(foreign)}, which only the owner may do"
        title = given_name(publication.changefeed)
        if first:
            missing[shown] = f"{creation(connection, title, tables)};"
            advice = f"Let the owner publish the tables: set publication_name = '{title}', and run"
        else:
            listed = ", ".join(table.sql_only for table in foreign)
            missing[shown] = f"ALTER PUBLICATION {quoted(publication.name)} ADD TABLE {listed};"
    elif joining and first and not create:
        statement = f"GRANT CREATE ON DATABASE {quoted(database)} TO {role};"
        missing[f"create a publication in database {database}"] = statement
    if missing:
        lacks = ", nor ".join(missing)
        raise ConfigError(f"role {name} may not {lacks}. {advice} {' '.join(missing.values())}", repairable=True)


def _oids(table: Table) -> list[int]:
    return [table.oid, *(leaf.oid for leaf in table.leaves)]


def _shown(tables: Iterable[Table]) -> str:
    return "table " + ", ".join(str(table.name) for table in tables)
