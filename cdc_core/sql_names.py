"""Names in SQL text, as PostgreSQL reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase

from cdc_core.schema import TableName

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold(name: str) -> str:
    """Return *name*, which is not in quotes, in lower case: of its letters only A to Z have one for PostgreSQL."""
    return name.translate(_FOLDED)


def name_parts(text: str) -> list[tuple[str, bool]] | None:
    """Return the parts of a name as `tables` lists it, and whether each is in quotes; None for any other text."""
    found = list(_PART.finditer(text))
    if ".".join(match[0] for match in found) != text:
        return None
    return [(fold(match[2]), False) if match[1] is None else (match[1].replace('""', '"'), True) for match in found]


def quoted(name: str) -> str:
    """Return *name* in quotation marks."""
    return '"' + name.replace('"', '""') + '"'


def listed(parts: Iterable[str]) -> str:
    """Return a name of several *parts* as it is listed under `tables`: with quotation marks where it needs them."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in parts)


def meant_tables(text: str, names: Iterable[TableName]) -> list[TableName]:
    """Return those of *names* that *text* may mean, in which a table is written as messages do, or as in `tables`."""
    names, parts = list(names), tuple(name for name, _ in name_parts(text) or ())
    return (
        [name for name in names if text in (name.full, name.qualified)]
        or [name for name in names if text == name.table]
        or [name for name in names if parts and (name.database, name.schema, name.table)[-len(parts) :] == parts]
    )
