"""The names that columns had: delivered rows have values under these names until their table is read again.

A column that takes back a name that only it has had, has the values that rows have under it. A column that takes the
name of another one has other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from cdc_rangefeed_postgres.token import Layout
from cdc_rangefeed_postgres.value_types import code_of

CODE = 4
"""The length of the code of a name, and of that of a type."""
DROPPED, GENERATED = "-" * 2 * CODE, "." * 2 * CODE
_NUMBER = 4


def attribute_codes(layout: Layout) -> list[str]:
    """Return the code of each attribute."""
    return _parts(layout.columns, 2 * CODE)


def names_had(before: Layout) -> Set[str]:
    """Return the names by which rows can have values, each with the number of an attribute that had it."""
    present = {
        _name(at, code) for at, code in enumerate(attribute_codes(before), 1) if code not in (DROPPED, GENERATED)
    }
    return present.union(_parts(before.past_names, _NUMBER + CODE))


def is_taken(code: str, had: Set[str], *, number: int = 0) -> bool:
    """Return whether an attribute other than *number*, which has the code *code*, *had* its name. 0 is a new one."""
    own = _name(number, code)
    return any(name != own and name[_NUMBER:] == own[_NUMBER:] for name in had)


def renamed(layout: Layout, names: Iterable[str]) -> list[str]:
    """Return those of *names* under which delivered rows may not have the values of their columns."""
    numbers = {name[:_NUMBER] for name in _parts(layout.past_names, _NUMBER + CODE)}
    codes = {code[:CODE] for at, code in enumerate(attribute_codes(layout), 1) if f"{at:0{_NUMBER}}" in numbers}
    return [name for name in names if code_of(name)[:CODE] in codes] if codes else []


def past_names(before: Layout, now: Sequence[str]) -> str:
    """Return `Layout.past_names` after *before*, when the attributes have the codes *now*."""
    renamed = {
        _name(at, was)
        for at, (was, code) in enumerate(zip(attribute_codes(before), now, strict=False), 1)
        if was != GENERATED and code not in (DROPPED, GENERATED)
    }
    present = {_name(at, code) for at, code in enumerate(now, 1)}
    return "".join(sorted(renamed.union(_parts(before.past_names, _NUMBER + CODE)) - present))


def _name(number: int, code: str) -> str:
    return f"{number:0{_NUMBER}}{code[:CODE]}"


def _parts(text: str, length: int) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]
