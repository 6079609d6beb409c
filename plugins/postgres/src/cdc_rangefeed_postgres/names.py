"""Names of tables as users write them, and names of the objects that a changefeed creates on the server."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc_core import ConfigError

__all__ = [
    "application_name",
    "feed_applications",
    "object_name",
    "object_pattern",
    "parse_tables",
    "quoted",
    "quoted_table",
]

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')
_IDENTIFIER_BYTES = 63
_FEED_ID_CHARACTERS = 12


def parse_tables(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return (schema, table) for each of *texts*: `schema.table` or `table`, with parts quoted as in SQL.

    As in SQL, a part without quotes is folded to lower case. The default schema is `public`.
    Raises: ConfigError for any other form, and for a table that is listed twice.
    """
    found: list[tuple[str, str]] = []
    for text in texts:
        parts = _parts(text)
        if parts is None or not 1 <= len(parts) <= 2:
            raise ConfigError(
                f"table name {text!r} is not valid. Write schema.table, with double quotes around a part that has "
                'capitals, blanks or dots, such as "My Schema"."Orders"'
            )
        name = (parts[0], parts[1]) if len(parts) == 2 else ("public", parts[0])
        if name in found:
            raise ConfigError(f"table {name[0]}.{name[1]} is listed twice. Remove one of the two")
        found.append(name)
    if not found:
        raise ConfigError("no table is listed. List at least one")
    return found


def _parts(text: str) -> list[str] | None:
    parts, position = [], 0
    text = text.strip()
    while True:
        match = _PART.match(text, position)
        if match is None:
            return None
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2].lower())
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            return None
        position += 1


def quoted(name: str) -> str:
    """Return *name* as an SQL identifier, always in quotes."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(schema: str, table: str) -> str:
    """Return the table's name in SQL."""
    return f"{quoted(schema)}.{quoted(table)}"


def object_name(changefeed: str, feed_id: str) -> str:
    """Return the name of a changefeed's slot and publication: in lower case, at most 63 bytes."""
    return f"{_object_prefix(changefeed, len(feed_id))}{feed_id}"


def object_pattern(changefeed: str) -> str:
    """Return a regular expression for the object names of all changefeeds called *changefeed*, whatever their id.

    A name that only differs in capitals, in special characters or after 46 characters has the same one.
    """
    return f"^{_object_prefix(changefeed, _FEED_ID_CHARACTERS)}[0-9a-f]{{{_FEED_ID_CHARACTERS}}}$"


def _object_prefix(changefeed: str, id_characters: int) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", changefeed.lower()).strip("_")
    return f"cdc_{name[: _IDENTIFIER_BYTES - 5 - id_characters]}_"


def application_name(changefeed: str, feed_id: str, role: str) -> str:
    """Return the name that pg_stat_activity shows for a connection: `cdc/<changefeed>/<feed id>/<role>`."""
    name = changefeed.encode("ascii", "replace").decode()
    return f"cdc/{name[: _IDENTIFIER_BYTES - 6 - len(feed_id) - len(role)]}/{feed_id}/{role}"


def feed_applications(feed_id: str) -> str:
    """Return a LIKE pattern for the application names of all connections of one changefeed."""
    return f"cdc/%/{feed_id}/%"
