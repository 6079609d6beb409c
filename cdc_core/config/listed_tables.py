"""Which tables the entries of `tables` may mean, as far as one can tell by the names alone.

Sections of tables are compared with them: one may not disappear while its table may still be watched. Where *schema* is
asked for, it is that of tables which are listed without one: see `RangefeedRegistration.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote

from cdc_core.config.interpolation import cut_references, fill_references
from cdc_core.errors import ConfigError
from cdc_core.messages import TopicNames
from cdc_core.queries.selection import Selection
from cdc_core.schema import TableName
from cdc_core.sql_names import fold, listed, name_parts
from cdc_core.uris import place_of, split_parameters

_WILD = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """An entry of `tables`. `parts` are None when its form is not known here: it may mean any table then."""

    text: str
    excludes: bool
    pattern: bool
    parts: tuple[str, ...] | None
    regexes: tuple[str, ...]

    @classmethod
    def parse(cls, written: str) -> Self:
        excludes, text = written.strip().startswith("!"), written.strip().removeprefix("!").strip()
        found = name_parts(text)
        wild = [{} if quoted else _WILD for _, quoted in found or ()]
        parts = tuple(part for part, _ in found or ())
        return cls(
            text=text,
            excludes=excludes,
            pattern=any(set(part) & set(each) for part, each in zip(parts, wild, strict=True)),
            parts=None if found is None else parts,
            regexes=tuple(
                "".join(each.get(letter) or re.escape(letter) for letter in part)
                for part, each in zip(parts, wild, strict=True)
            ),
        )

    def full(self, schema: str) -> tuple[str, ...]:
        """Return what entries that mean the same have in common: regexes, with a schema, or a text of unknown form."""
        if self.parts is None:
            return (self.text,)
        return self.regexes if len(self.regexes) > 1 else (re.escape(schema), *self.regexes)

    def is_spelled(self, table: str) -> bool:
        """Return whether it is the name of *table*, written with as many parts."""
        return not self.pattern and self.parts is not None and self.parts == _parts(table)

    def name_of(self, table: str) -> tuple[str, ...]:
        """Return the name of *table* as the pattern writes it; an empty one when it could be in several schemas."""
        if self.parts is None:
            return ()
        own, parts = _parts(table), self.parts
        front = max(len(parts) - len(own), 0)
        wild = any(regex != re.escape(part) for regex, part in zip(self.regexes[:front], parts, strict=False))
        return () if wild else (*parts[:front], *own)

    def may_mean(self, table: str) -> bool:
        """Return whether *table* may be one that it names or matches. Upper case does not tell tables apart."""
        if self.parts is None:
            return True
        pairs = zip(reversed(self.regexes), reversed(_parts(table)), strict=False)
        return all(re.fullmatch(regex, part, re.DOTALL | re.IGNORECASE) for regex, part in pairs)


def database_of(source: str) -> str:
    """Return the database that the URI *source* names; "" where a reference stands for it."""
    text, references = cut_references(source)
    path = place_of(text).partition("://")[2].partition("/")[2]
    return unquote(path) if fill_references(path, references) == path else ""


def named_tables(tables: Sequence[str], database: str, schema: str) -> list[TableName] | None:
    """Return the tables that are listed for *database*; None where patterns decide which there are."""
    entries = [_Entry.parse(text) for text in tables]
    if any(entry.pattern or entry.excludes for entry in entries):
        return None
    return [TableName(database, *(schema, *entry.parts)[-2:]) for entry in entries if entry.parts]


def own_name(text: str, source: str) -> str:
    """Return the name of a table as `tables` lists it: without its database, if that is the one of *source*, a URI."""
    entry, database = _Entry.parse(text), database_of(source)
    parts = entry.parts or ()
    if len(parts) != 3 or entry.pattern or entry.excludes or parts[0] not in (database, fold(database)):
        return text
    return listed(parts[1:])


def same_entry(text: str, other: str, schema: str) -> bool:
    """Return whether two entries of `tables` mean the same, as `orders` and `public.orders` do."""
    mine, its = _Entry.parse(text), _Entry.parse(other)
    return (mine.excludes, mine.full(schema)) == (its.excludes, its.full(schema))


def watches(tables: Sequence[str], table: str, *, but: Collection[str] = ()) -> bool:
    """Return whether a list of tables may mean *table*, the name of a section. The entries *but* mean others.

    Only an exclusion of exactly this table says that a pattern does not mean it. Exclusions are not for listed names.
    """
    entries = [_Entry.parse(text) for text in tables if text not in but]
    exclusions = {entry.parts for entry in entries if entry.excludes and not entry.pattern and entry.parts}
    meant = [entry for entry in entries if not entry.excludes and entry.may_mean(table)]
    return any(not entry.pattern or entry.name_of(table) not in exclusions for entry in meant)


def matched(tables: Sequence[str], table: str, schema: str) -> str | None:
    """Return the name, with its schema, of *table* if a pattern in *tables* means it and it is allowed; or None."""
    entries = [_Entry.parse(text) for text in tables]
    own = _Entry.parse(table)
    if own.pattern or own.excludes or own.parts is None:
        return None
    name = listed(own.parts if len(own.parts) > 1 or not schema else (schema, *own.parts))
    patterns = [each for each in entries if each.pattern and each.parts is not None and not each.excludes]
    excluded = any(entry.excludes and not entry.pattern and entry.full(schema) == own.full(schema) for entry in entries)
    found = any(len(each.full(schema)) == len(own.full(schema)) and each.may_mean(name) for each in patterns)
    return name if found and not excluded else None


def namesakes(tables: Sequence[str], table: str) -> set[str]:
    """Return the names in *tables* which may mean *table*, and do not, as another one is spelled as it is."""
    entries = {text: _Entry.parse(text) for text in tables}
    named = {text for text, entry in entries.items() if not entry.excludes and not entry.pattern}
    spelled = {text for text in named if entries[text].is_spelled(table)}
    return {text for text in named - spelled if entries[text].may_mean(table)} if spelled else set()


def _parts(table: str) -> tuple[str, ...]:
    """Return the name of the table of a section; an empty one, which may be any, when it is none."""
    try:
        return Selection(table=table).name
    except ConfigError:
        return ()


def topics_of(definition: Mapping[str, Any], schema: str) -> list[str] | None:
    """Return the topics by the options about them; None where patterns decide which tables there are."""
    written, source = definition.get("written", definition), definition["source"]
    names = named_tables(definition["tables"], database_of(source if isinstance(source, str) else source[0]), schema)
    if names is None:
        return None
    parameters = split_parameters(written["sink"], owner="the sink")[1]
    options = {name.lower(): value for name, value in {**written.get("options", {}), **parameters}.items()}
    prefix = str(options.get("topic_prefix", ""))
    if "topic_name" in options:
        return [f"{prefix}{options['topic_name']}"]
    topics = TopicNames(
        full_table_name=str(options.get("full_table_name", False)).lower() == "true",
        prefix=prefix,
        pattern=options.get("topic"),
    )
    return list(dict.fromkeys(map(topics.of, names)))
