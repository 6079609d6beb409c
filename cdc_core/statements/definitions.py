"""From `CREATE CHANGEFEED` to the definition that a file would give, and back."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changefeed_of
from cdc_core.config.interpolation import escaped, with_absolute_files
from cdc_core.errors import ConfigError
from cdc_core.sql_names import name_parts, quoted
from cdc_core.statements.values import CreateChangefeed

_MAX_LENGTH = 36
"""Of a derived name, which leaves space for a number."""
_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")


def changefeed_of_statement(
    statement: CreateChangefeed, name: str, *, sources: Sequence[str], directory: Path, environ: Mapping[str, str]
) -> Changefeed:
    """Return the changefeed *name* of the databases *sources* that *statement* describes, with references kept.

    Relative paths in references are in *directory*. Raises: ConfigError.
    """
    if not sources:
        raise ConfigError("CREATE CHANGEFEED needs a database to watch; name it with --source URI")
    options = {option: value for option, value in statement.options.items() if not _is_spark(option)}
    written: dict[str, Any] = {
        "source": sources[0] if len(sources) == 1 else list(sources),
        **({"tables": escaped(statement.tables)} if statement.query is None else {"query": statement.query}),
        **({} if statement.sink is None else {"sink": statement.sink}),
        **({"format": options.pop("format")} if "format" in options else {}),
        "options": options,
        "spark": {option: str(value) for option, value in statement.options.items() if _is_spark(option)},
    }
    return changefeed_of(name, with_absolute_files(written, directory), origin="CREATE CHANGEFEED", environ=environ)


def derived_name(tables: Sequence[str], taken: Collection[str], *, longest: int = _MAX_LENGTH) -> str:
    """Return a name for a changefeed of *tables* that is not *taken*: `orders`, then `orders_2`, and so on."""
    words = [_word(table) for table in tables]
    base = "_".join(words)
    if len(base) > longest:
        base = words[0][:longest]
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _word(table: str) -> str:
    """Return what stands for *table* in a name: its own name, or the schema's where that is `*`."""
    parts = [name for name, _ in name_parts(table) or ()]
    while parts[-1:] == ["*"]:
        parts.pop()
    letters = unicodedata.normalize("NFKD", parts[-1] if parts else "").encode("ascii", "ignore").decode()
    return _OTHERS.sub("_", letters).strip("_") or "changefeed"


def _is_spark(option: str) -> bool:
    return option == "master" or option.startswith("spark.")


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
        shown = name if _PLAIN.fullmatch(name) else quoted(name)
        if value is True:
            yield shown
        elif isinstance(value, str):
            yield f"{shown} = {_text(value)}"
        else:
            yield f"{shown} = {_text(json.dumps(value))}"


def _text(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"
