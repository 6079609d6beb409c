"""The role as which the changefeeds of tests connect: it has the rights of docs/postgres.md and no others."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import sql

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

_ITERATIONS_SINCE = 160000


def documented(uri: str) -> str:
    """Return *uri* with the documented role in place of the owner. A URI of any other role stays as it is."""
    return uri.replace(f"//{OWNER}:", f"//{ROLE}:", 1)


def create_roles(uri: str, password: str) -> None:
    """Create both roles on a new server, *uri* of `postgres`, and have it log connections for `superusers`.

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
        connection.execute("ALTER SYSTEM SET log_connections = on")


def superusers(log: str) -> list[str]:
    """Return, from the *log* of a server, as whom changefeeds connected that took no documented role."""
    return re.findall(rf"connection authorized: (user=(?:postgres|{OWNER}) .*application_name=cdc/.*)", log)


def grant_database(connection: psycopg.Connection[Any], database: str) -> None:
    """Let the role create its publications in *database*."""
    connection.execute(DOCUMENTED[2].format(database=database).encode())
