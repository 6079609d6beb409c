"""Names in SQL, and the names of what a changefeed creates on the server."""

from __future__ import annotations

import re
import secrets
from string import ascii_lowercase, ascii_uppercase

from cdc_core import TableName

TEMPORARY = "temporary"
"""The role of connections that hold what ends with them."""

_FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)
_IDENTIFIER_BYTES = 63
_FEED_ID_CHARACTERS = 12


def quoted(name: str) -> str:
    """Return *name* as a SQL identifier, always in quotes."""
    return '"' + name.replace('"', '""') + '"'


def folded(name: str) -> str:
    """Return a SQL identifier without quotes as PostgreSQL reads it: of its letters only A to Z are folded."""
    return name.translate(_FOLDED)


def qualified(schema: str, table: str) -> str:
    """Return by what a table is known: its `TableName.qualified`."""
    return TableName("", schema, table).qualified


def quoted_table(schema: str, table: str) -> str:
    """Return the table's name in SQL."""
    return f"{quoted(schema)}.{quoted(table)}"


def object_name(changefeed: str, feed_id: str) -> str:
    """Return the name of a changefeed's slot and publication: in lower case, at most 63 bytes."""
    return f"{_object_prefix(changefeed, len(feed_id))}{feed_id}"


def given_name(changefeed: str) -> str:
    """Return a name for a publication that a person creates for *changefeed*, which never uses it for its own."""
    return _object_prefix(changefeed, _FEED_ID_CHARACTERS).rstrip("_")


def temporary_title(changefeed: str) -> str:
    """Return how comments name a run of *changefeed* that leaves nothing behind: as no changefeed can be called."""
    return f"{changefeed} {TEMPORARY}"


def temporary_name(changefeed: str, feed_id: str) -> str:
    """Return the name of the slot and the publication of such a run."""
    return object_name(temporary_title(changefeed), feed_id)


def copy_name(slot: str) -> str:
    """Return a new name for a copy of *slot* that ends with its connection."""
    suffix = f"_copy_{secrets.token_hex(4)}"
    return slot[: _IDENTIFIER_BYTES - len(suffix)] + suffix


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
