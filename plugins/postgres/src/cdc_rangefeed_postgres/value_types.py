"""The enums and composite types of the watched columns: a change of one changes how rows that exist are read.

`ALTER TYPE … RENAME VALUE` gives rows another value, and a composite type that gains, loses or renames an attribute
gives them another form. The log has nothing about it, and the tables look as before.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc_core import ShapeChange
from cdc_rangefeed_postgres.connection import Connection

# Types of PostgreSQL itself have smaller oids than 16384, and do not change.
_USED = """
WITH RECURSIVE used AS (
    SELECT a.attrelid AS relation, a.atttypid AS type FROM pg_attribute a
    WHERE a.attrelid = ANY(%(tables)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
      AND (%(columns)s::text[] IS NULL OR a.attname = ANY(%(columns)s::text[]))
    UNION
    SELECT u.relation, part.type FROM used u JOIN pg_type t ON t.oid = u.type CROSS JOIN LATERAL (
        SELECT t.typbasetype UNION ALL SELECT t.typelem
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS part(type)
    WHERE part.type >= 16384)
"""
_MEMBERS = (
    _USED
    + """
SELECT u.relation::bigint, t.oid::bigint, t.typname::text, t.typtype::text, e.oid::bigint, e.enumlabel::text, false
FROM used u JOIN pg_type t ON t.oid = u.type JOIN pg_enum e ON e.enumtypid = t.oid
UNION ALL
SELECT u.relation::bigint, t.typrelid::bigint, t.typname::text, t.typtype::text, a.attnum, a.attname::text,
       a.attisdropped
FROM used u JOIN pg_type t ON t.oid = u.type JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0
ORDER BY 1, 2, 5
"""
)
_COMPOSITES = (
    _USED
    + """
SELECT DISTINCT t.typrelid::bigint FROM used u JOIN pg_type t ON t.oid = u.type WHERE t.typrelid <> 0 ORDER BY 1
"""
)
_CODE = 4
_DROPPED = "-" * _CODE


@dataclass(frozen=True, slots=True)
class Member:
    """A value of an enum, or an attribute of a composite type."""

    owner: int
    """The enum, or the relation that describes the composite type."""
    type: str
    kind: str
    """pg_type.typtype: e or c."""
    number: int
    name: str
    dropped: bool

    @property
    def code(self) -> str:
        owner, member = (code_of(str(part))[:_CODE] for part in (self.owner, self.number))
        return owner + member + (_DROPPED if self.dropped else code_of(self.name)[:_CODE])


def members_of(
    connection: Connection, tables: Sequence[int], columns: Sequence[str] | None = None
) -> Mapping[int, Sequence[Member]]:
    """Return, for each of *tables*, the members of all types that its columns, or those in *columns*, consist of."""
    found: dict[int, list[Member]] = {oid: [] for oid in tables}
    only = None if columns is None else list(columns)
    for relation, *member in connection.execute(_MEMBERS, {"tables": list(tables), "columns": only}):
        found[relation].append(Member(*member))
    return found


def composites_of(connection: Connection, tables: Sequence[int]) -> tuple[int, ...]:
    """Return the relations that describe the composite types of which the columns of *tables* consist."""
    return tuple(row[0] for row in connection.execute(_COMPOSITES, {"tables": list(tables), "columns": None}))


def member_changes(before: str, members: Sequence[Member]) -> Iterator[tuple[ShapeChange, str]]:
    """Yield what happened to types since the codes of their members were *before*. A value that an enum got is none."""
    codes = [before[at : at + 3 * _CODE] for at in range(0, len(before), 3 * _CODE)]
    names = {code[: 2 * _CODE]: code[2 * _CODE :] for code in codes}
    owners = {code[:_CODE] for code in codes}
    taken = {code[:_CODE] + code[2 * _CODE :] for code in codes}
    for member in members:
        code = member.code
        was, now = names.get(code[: 2 * _CODE]), code[2 * _CODE :]
        if was != now and member.kind == "c" and not member.dropped and code[:_CODE] + now in taken:
            yield ShapeChange.VALUES_CHANGED, f"another attribute of type {member.type} is now called {member.name}"
        elif was is None:
            if member.kind == "c" and not member.dropped and code[:_CODE] in owners:
                yield ShapeChange.COLUMN_ADDED, f"attribute {member.name} was added to type {member.type}"
        elif was != now and member.dropped:
            yield ShapeChange.COLUMN_DROPPED, f"an attribute of type {member.type} was dropped"
        elif was != now and member.kind == "c":
            yield ShapeChange.COLUMN_RENAMED, f"an attribute of type {member.type} was renamed to {member.name}"
        elif was != now:
            yield ShapeChange.VALUES_CHANGED, f"a value of type {member.type} was renamed to {member.name}"


def code_of(text: str) -> str:
    """Return eight characters that stand for *text*."""
    return urlsafe_b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:6]).decode()
