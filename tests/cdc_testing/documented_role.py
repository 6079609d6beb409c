"""The role as which the changefeeds of tests connect: it has the rights of docs/postgres.md and no others."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

__all__ = ["OWNER", "ROLE", "create_roles", "documented", "grant_database"]

OWNER = "shop_owner"
"""A superuser that prepares tests and owns their tables. A member inherits what it owns, but no attribute such as this.

Not `postgres`, which owns the server's own functions: a member of that might call all of them.
"""
ROLE = "cdc"
DOCUMENTED = (
    "CREATE ROLE cdc LOGIN REPLICATION PASSWORD '{password}'",
    "GRANT shop_owner TO cdc",
    "GRANT CREATE ON DATABASE {database} TO cdc",
)
"""Ownership includes SELECT."""

# Connections of changefeeds are known by their application. There are such triggers since PostgreSQL 17.
_GUARD = """
CREATE FUNCTION refuse_superuser() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    IF session_user IN ('postgres', 'shop_owner') AND current_setting('application_name') LIKE 'cdc/%' THEN
        RAISE 'a changefeed of a test connects as %, give it documented(URI)', session_user;
    END IF;
END $$;
CREATE EVENT TRIGGER refuse_superuser ON login EXECUTE FUNCTION refuse_superuser();
"""
_GUARDED_SINCE = 170000
_ITERATIONS_SINCE = 160000


def documented(uri: str) -> str:
    """Return *uri* with the documented role in place of the owner. A URI of any other role stays as it is."""
    return uri.replace(f"//{OWNER}:", f"//{ROLE}:", 1)


def create_roles(uri: str, password: str) -> None:
    """Create both roles on a new server, *uri* of `postgres`, whose databases refuse changefeeds of superusers.

    Their passwords are hashed once, where the server can do that: 4,096 times would be half the cost of a connection.
    """
    with psycopg.connect(uri, autocommit=True) as connection:
        if connection.info.server_version >= _ITERATIONS_SINCE:
            connection.execute("SET scram_iterations = 1")
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(sql.Identifier(OWNER), sql.Literal(password))
        )
        for statement in DOCUMENTED[:2]:
            connection.execute(statement.format(password=password).encode())
        grant_database(connection, "postgres")
    for database in ("postgres", "template1"):
        with psycopg.connect(uri, dbname=database, autocommit=True) as connection:
            if connection.info.server_version >= _GUARDED_SINCE:
                connection.execute(_GUARD)


def grant_database(connection: psycopg.Connection[Any], database: str) -> None:
    """Let the role create its publications in *database*."""
    connection.execute(DOCUMENTED[2].format(database=database).encode())
