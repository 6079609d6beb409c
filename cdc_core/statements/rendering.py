"""A stored definition as the statement that would give it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["statement_text"]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

_NOT_SAID = {
    "table": "/* with sections of tables: see cdc show */",
    "functions": "/* with functions: see cdc show */",
}
"""By what a definition may have and no statement can say, the comment that says so."""


def statement_text(definition: Mapping[str, Any]) -> str:
    """Return `CREATE CHANGEFEED …` for a definition of the store: with references, and without secrets.

    What a statement cannot say, sections of tables and functions, is named in a comment at the end.
    """
    written = definition.get("written", definition)
    into = f"INTO {_text(written['sink'])}"
    given = {"format": written["format"]} if "format" in written else {}
    options = ", ".join(_options({**given, **written.get("options", {}), **written.get("spark", {})}))
    rest = f"{into} WITH {options}" if options else into
    missing = "".join(f" {comment}" for name, comment in _NOT_SAID.items() if written.get(name))
    if "query" in written:
        query = str(written["query"]).strip().removesuffix(";").rstrip()
        line_end = "\n" if missing and "--" in query else ""
        return f"CREATE CHANGEFEED {rest} AS {query}{line_end}{missing}"
    return f"CREATE CHANGEFEED FOR TABLE {', '.join(definition['tables'])} {rest}{missing}"


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        shown = name if _PLAIN.fullmatch(name) else '"{}"'.format(name.replace('"', '""'))
        if value is True:
            yield shown
        elif isinstance(value, str):
            yield f"{shown} = {_text(value)}"
        else:
            yield f"{shown} = {_text(json.dumps(value))}"


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
