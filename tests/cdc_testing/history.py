"""The true history of a table, recorded by the database, and the history that a changefeed delivered.

PostgreSQL cannot read a row `AS OF` an earlier time. So a trigger writes every version of every row into the table
`history` in the same transaction. Because of row locks, the versions of each key are in the order of their commits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from cdc_conformance.validators import Commit, Row, SeenRow
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.files import paths_in_order
from psycopg import sql

from cdc_core import Timestamp

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


def commits(table: str, versions: Mapping[str, Sequence[str | None]], present: Collection[str]) -> list[Commit]:
    """Return `recorded` *versions* as commits of *table*. The first commit inserts the keys in *present*.

    Only the commits of one key are in order. A transaction that inserts and deletes a key may give a delete of a key
    that did not exist.
    """
    first = [(table, (key,), _row(rows[0] if key in present else None)) for key, rows in versions.items()]
    return [
        first,
        *([(table, (key,), _row(row))] for key, rows in versions.items() for row in rows[int(key in present) :]),
    ]


def arrivals(directory: Path, connection: psycopg.Connection[Any], table: str) -> list[SeenRow]:
    """Return the first delivery of each version in the files below *directory*, in order, with texts as `recorded`.

    The server converts `before` and `after` to rows of *table*, and these to text in the same way as `record`.
    """
    # json, because jsonb would change the form of numbers
    connection.execute("CREATE TEMPORARY TABLE arrived (n int, key text, updated text, message json)")
    seen = set()
    with connection.cursor().copy("COPY arrived FROM STDIN") as copy:
        for path in paths_in_order(directory):
            if not isinstance(parse_name(str(path)), DataFile):
                continue
            for line in path.read_bytes().decode().rstrip("\n").split("\n"):
                row = json.loads(line)
                identity = (json.dumps(row["key"]), row["updated"])
                if identity not in seen:
                    seen.add(identity)
                    copy.write_row([len(seen), *identity, line])
    _set(connection)
    version = (
        "CASE json_typeof(message->'{0}') WHEN 'object' THEN json_populate_record(NULL::{1}, message->'{0}')::text END"
    )
    name = sql.Identifier(table).as_string(connection)
    before, after = (version.format(image, name) for image in ("before", "after"))
    found = connection.execute(f"SELECT key::jsonb::text, updated, {before}, {after} FROM arrived ORDER BY n")
    return [
        SeenRow(topic=table, key=(key,), updated=Timestamp.parse(updated), before=_row(before), after=_row(after))
        for key, updated, before, after in found
    ]


def _row(version: str | None) -> Row | None:
    return None if version is None else {"row": version}


def _set(connection: psycopg.Connection[Any]) -> None:
    for setting in _SETTINGS.split("SET ")[1:]:
        connection.execute(f"SET {setting}")
