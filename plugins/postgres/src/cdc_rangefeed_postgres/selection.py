"""What `tables` says: names of tables, patterns, and exclusions from the patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from cdc_core import ConfigError, TableName
from cdc_rangefeed_postgres.names import folded, qualified, quoted

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')
_WILD = {"*": "%", "?": "_"}
_LIKE = re.compile(r"\\(.)|(.)", re.DOTALL)
_REGEX = {"%": ".*", "_": "."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A pattern as the user wrote it, and as patterns of LIKE in SQL."""

    text: str
    schema: str
    table: str

    def matches(self, schema: str, table: str) -> bool:
        return _is_like(schema, self.schema) and _is_like(table, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The tables that are wanted: *names*, (schema, table), and what *patterns* match and *exclusions* do not."""

    names: tuple[tuple[str, str], ...]
    patterns: tuple[Pattern, ...] = ()
    exclusions: tuple[Pattern, ...] = ()
    databases: tuple[tuple[str, str], ...] = ()
    """Entries that name a database, and which."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return what *texts* say, each `schema.table` or `table`, with parts quoted as in SQL. The database, which may
        come first, is for `require_database`.

        As in SQL, A to Z in a part without quotes are folded to lower case. The default schema is `public`. A part
        without quotes that has `*` for any characters, or `?` for one, makes a pattern. A `!` in front makes an
        exclusion.
        Raises: ConfigError for any other form, for a table that is listed twice, and for an exclusion without patterns.
        """
        names: list[tuple[str, str]] = []
        patterns: list[Pattern] = []
        exclusions: list[Pattern] = []
        databases: list[tuple[str, str]] = []
        for text in texts:
            parts = _parts(text.strip().removeprefix("!"))
            if parts is not None and len(parts) == 3 and not parts[0].wild:
                databases.append((text.strip(), parts.pop(0).name))
            if parts is None or not 1 <= len(parts) <= 2:
                raise ConfigError(
                    f"table name {text!r} is not valid. Write schema.table, with double quotes around a part with "
                    'capitals, spaces or dots, such as "My Schema"."Orders"'
                )
            schema, table = parts if len(parts) == 2 else (_Part("public", "public", False), parts[0])
            if text.strip().startswith("!"):
                exclusions.append(Pattern(text=text.strip(), schema=schema.like, table=table.like))
            elif schema.wild or table.wild:
                patterns.append(Pattern(text=text.strip(), schema=schema.like, table=table.like))
            elif (schema.name, table.name) in names:
                name = qualified(schema.name, table.name)
                raise ConfigError(f"table {name} is listed twice. Remove one of the entries")
            else:
                names.append((schema.name, table.name))
        if not names and not patterns:
            raise ConfigError("no table is listed. List at least one table")
        if exclusions and not patterns:
            raise ConfigError(
                f"'{exclusions[0].text}' excludes nothing, because no pattern is listed. Remove this entry, or add a"
                " pattern such as public.*"
            )
        return cls(
            names=tuple(names), patterns=tuple(patterns), exclusions=tuple(exclusions), databases=tuple(databases)
        )

    def require_database(self, connected: str) -> None:
        """Return when no entry names another database than *connected*. Raises: ConfigError."""
        for text, database in self.databases:
            if database != connected:
                raise ConfigError(
                    f"{text!r} names a table in database {database}, but the source is database {connected}. List"
                    " tables of the source, or correct the source's URI"
                )

    def lists(self, name: str) -> bool:
        """Return whether the table *name*, see `qualified`, is listed by its name."""
        found = TableName.parse(name, database="")
        return (found.schema, found.table) in self.names

    def wants(self, name: str) -> bool:
        """Return whether the table *name*, see `qualified`, is listed, or matches."""
        found = TableName.parse(name, database="")
        return self.lists(name) or (
            any(pattern.matches(found.schema, found.table) for pattern in self.patterns)
            and not any(pattern.matches(found.schema, found.table) for pattern in self.exclusions)
        )


def choice(chosen: Mapping[str, bool], name: str) -> bool | None:
    """Return what was *chosen*, by entry of `tables`, for the table *name*, see `qualified`; None when nothing was.

    Its name comes before patterns, and a later pattern before an earlier one.
    """
    wanted = None
    for text, each in chosen.items():
        if text.strip().startswith("!"):
            continue
        entry = Selection.parse([text])
        if entry.lists(name):
            return each
        if entry.wants(name):
            wanted = each
    return wanted


def exclusion(schema: str, table: str) -> str:
    """Return the entry of `tables` that excludes a table."""
    return "!" + ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in (schema, table))


class _Part(NamedTuple):
    name: str
    like: str
    wild: bool


def _parts(text: str) -> list[_Part] | None:
    parts, position = [], 0
    text = text.strip()
    while True:
        match = _PART.match(text, position)
        if match is None:
            return None
        name = match[1].replace('""', '"') if match[1] is not None else folded(match[2])
        wild = _WILD if match[1] is None else {}
        like = "".join(wild.get(letter) or ("\\" + letter if letter in "\\%_" else letter) for letter in name)
        parts.append(_Part(name, like, any(letter in wild for letter in name)))
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            return None
        position += 1


def _is_like(name: str, pattern: str) -> bool:
    regex = "".join(
        re.escape(literal) if literal else _REGEX.get(letter, re.escape(letter))
        for literal, letter in _LIKE.findall(pattern)
    )
    return re.fullmatch(regex, name, re.DOTALL) is not None
