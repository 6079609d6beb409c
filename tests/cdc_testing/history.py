"""What a table really went through, recorded by the database itself, and what a changefeed made of it.

PostgreSQL cannot be asked what a row was `AS OF` a time. So a trigger writes every version of every row into a table
`history` in the same transaction; row locks make its order that of the commits of each key.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.files import paths_in_order
from psycopg import sql

from cdc_core import Timestamp

__all__ = ["HistoryValidator", "arrivals", "record", "recorded"]

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


@dataclass
class HistoryValidator:
    """Of each key exactly the versions that it had arrive, in their order, each with the one before it.

    `history` holds the versions of each key, None where the row was deleted. Those of *scanned* keys begin with what
    the table held at the start: it arrives too, unless its successor was read first. A version may arrive once more as
    a scanned row, without the one before it. Feed first arrivals only, not repeats.
    """

    history: Mapping[str, Sequence[str | None]]
    scanned: frozenset[str] = frozenset()
    diff: bool = True
    _places: dict[str, set[int]] = field(default_factory=dict)
    _failures: list[str] = field(default_factory=list)

    def note_row(self, key: str, before: str | None, after: str | None) -> None:
        """Take one row; *before* and *after* are versions as `history` has them."""
        versions = self.history.get(key, ())
        places = self._places.get(key)
        if places is None:
            possible = {0, 1} if key in self.scanned else {0}
            scanned = key in self.scanned and before is None
            found = {
                place
                for place in possible
                if place < len(versions)
                and versions[place] == after
                and (self._precedes(versions, place, before) or (place == 0 and scanned))
            }
        else:
            found = {
                place + 1
                for place in places
                if place + 1 < len(versions)
                and versions[place + 1] == after
                and self._precedes(versions, place + 1, before)
            }
            if before is None and after is not None:
                found |= {place for place in places if versions[place] == after}
        if found:
            self._places[key] = found
        else:
            self._failures.append(f"key {key}: {after} after {before} is not what comes next in {list(versions)}")

    def failures(self) -> list[str]:
        """Return what was wrong; call it when everything has arrived."""
        late = [
            f"key {key}: the last of {len(versions)} versions never arrived: {versions[-1]}"
            for key, versions in self.history.items()
            if len(versions) - 1 not in self._places.get(key, ())
            and not (versions == [None] and key not in self._places)
        ]
        return self._failures + late

    def _precedes(self, versions: Sequence[str | None], place: int, before: str | None) -> bool:
        return not self.diff or before == (versions[place - 1] if place else None)


def record(connection: psycopg.Connection[Any], table: str) -> None:
    """Record the versions of *table*, whose key is `id`, from its present rows on."""
    connection.execute(_RECORD)
    trigger = "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION note()"
    present = (
        "INSERT INTO history (tx, key, version) SELECT pg_current_xact_id(), jsonb_build_array(id), t::text FROM {} t"
    )
    _set(connection)
    for statement in (trigger, present):
        connection.execute(sql.SQL(statement).format(sql.Identifier(table)))


def recorded(connection: psycopg.Connection[Any]) -> dict[str, list[str | None]]:
    """Return the committed versions by key; of several in one transaction the last."""
    versions: dict[str, list[str | None]] = defaultdict(list)
    for key, version in connection.execute(_VERSIONS):
        versions[key].append(version)
    return dict(versions)


def arrivals(
    directory: Path, connection: psycopg.Connection[Any], table: str
) -> list[tuple[str, Timestamp, str | None, str | None]]:
    """Return the first arrivals in the files below *directory* as (key, updated, before, after), in order.

    The server turns `before` and `after` into rows of *table* again, and those into text as `record` did.
    """
    # json and not jsonb, which would write numbers anew
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
    return [(key, Timestamp.parse(updated), before, after) for key, updated, before, after in found]


def _set(connection: psycopg.Connection[Any]) -> None:
    for setting in _SETTINGS.split("SET ")[1:]:
        connection.execute(f"SET {setting}")
