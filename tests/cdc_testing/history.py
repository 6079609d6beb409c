"""The true history of a table, recorded by the database.

PostgreSQL cannot read a row `AS OF` an earlier time. So a trigger writes every version of every row into the table
`history` in the same transaction. Because of row locks, the versions of each key are in the order of their commits.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg
from psycopg import sql

_SETTINGS = "SET timezone = 'UTC' SET datestyle = 'ISO' SET extra_float_digits = 1 SET bytea_output = 'hex'"
_RECORD = f"""
CREATE TABLE history (seq bigserial PRIMARY KEY, tx xid8, key jsonb, version text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql {_SETTINGS} AS $$
BEGIN
    IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND OLD.id <> NEW.id THEN
        INSERT INTO history (tx, key, version) VALUES (pg_current_xact_id(), jsonb_build_array(OLD.id), NULL);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO history (tx, key, version) VALUES (pg_current_xact_id(), jsonb_build_array(NEW.id), NEW::text);
    END IF;
    RETURN NULL;
END $$;
"""
_VERSIONS = """
SELECT key::text, version FROM history h
WHERE NOT EXISTS (SELECT FROM history later WHERE later.key = h.key AND later.tx = h.tx AND later.seq > h.seq)
ORDER BY seq
"""


def record(connection: psycopg.Connection[Any], table: str) -> None:
    """Record the present rows and all later versions of *table*, whose key is `id`."""
    connection.execute(_RECORD)
    trigger = "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION note()"
    present = (
        "INSERT INTO history (tx, key, version) SELECT pg_current_xact_id(), jsonb_build_array(id), t::text FROM {} t"
    )
    _set(connection)
    for statement in (trigger, present):
        connection.execute(sql.SQL(statement).format(sql.Identifier(table)))


def recorded(connection: psycopg.Connection[Any]) -> dict[str, list[str | None]]:
    """Return the committed versions by key: the last version of each transaction."""
    versions: dict[str, list[str | None]] = defaultdict(list)
    for key, version in connection.execute(_VERSIONS):
        versions[key].append(version)
    return dict(versions)


def _set(connection: psycopg.Connection[Any]) -> None:
    for setting in _SETTINGS.split("SET ")[1:]:
        connection.execute(f"SET {setting}")
