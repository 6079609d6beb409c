"""A definition as the text of a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["toml_text"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_FIRST = ("source", "tables", "query", "sink", "format")
_SECTIONS = ("options", "functions", "spark")


def toml_text(name: str, written: Mapping[str, Any]) -> str:
    """Return the file whose only changefeed is *name*, as `Changefeed.written` has it. It may lack anything."""
    start = f"changefeed.{_key(name)}"
    tables = {key: written[key] for key in _SECTIONS if written.get(key)}
    tables |= {f"table.{_key(table)}": section for table, section in written.get("table", {}).items()}
    lines = [f"[{start}]", *_pairs({key: written[key] for key in _FIRST if key in written})]
    for key, table in tables.items():
        lines += ["", f"[{start}.{key}]", *_pairs(table)]
    return "\n".join(lines) + "\n"


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(key)} = {_value(value)}" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else f'"{_escaped(key)}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value if each is not None)}]"
    if not isinstance(value, str):
        return repr(value)
    if "\n" in value:
        lines = "\n".join(map(_escaped, value.split("\n")))
        return f'"""\n{lines}"""'
    return f'"{_escaped(value)}"'


def _escaped(text: str) -> str:
    """Return *text* as it is between quotes. JSON escapes as TOML does, but for one character."""
    readable = text.encode(errors="replace").decode()  # half of a surrogate pair is no text
    return json.dumps(readable, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
