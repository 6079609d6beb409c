"""Changefeeds from a TOML file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from cdc_core.config.changefeed import Changefeed, require_types
from cdc_core.config.definition import changefeed_of
from cdc_core.config.interpolation import with_absolute_files
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean

_KEYS = ("source", "tables", "table", "query", "functions", "sink", "format", "options", "spark")
_MAX_TEXT, _MAX_PARTS, _MAX_LEVELS = 1 << 16, 20, 100
_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w\\-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MAX_PARTS}}}")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


def read_changefeed(
    path: Path | str, name: str | None = None, *, environ: Mapping[str, str] | None = None
) -> Changefeed:
    """Return the changefeed called *name* in the file at *path*, or the only one if *name* is not given.

    It may lack a sink. References in the other changefeeds of the file are not resolved. Raises: ConfigError, which
    names the file and the place in it.
    """
    path = Path(path)
    tables = _read(path)
    name = _chosen(path, name, tables)
    return _changefeed(path, name, tables[name], os.environ if environ is None else environ)


def find_name(path: Path, name: str | None) -> str:
    """Return the name of the changefeed that `read_changefeed` would return. Raises: ConfigError."""
    return _chosen(path, name, _read(path))


def changefeed_names(path: Path) -> list[str]:
    """Return the names of all changefeeds in the file, in its order. Raises: ConfigError."""
    return list(_read(path))


def definition_in(text: str, *, origin: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the definition, as `Changefeed.written`, of the only changefeed in *text*.

    It may lack anything. The text may be a stranger's: what would take long to read is refused. Raises: ConfigError,
    which begins with *origin*.
    """
    if len(text) > _MAX_TEXT:
        raise ConfigError(f"{origin} has more than {_MAX_TEXT:,} characters; use cdc create with a file")
    if (key := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, key.start()) + 1
        raise ConfigError(f"{origin}, line {line}: a key has more than {_MAX_PARTS} parts; shorten it")
    tables = _tables(text, origin)
    if len(tables) > 1:
        raise ConfigError(f"{origin} has several changefeeds; keep only one of them: {', '.join(sorted(tables))}")
    ((name, table),) = tables.items()
    return name, _written(f"{origin}: changefeed '{name}'", table)


def _chosen(path: Path, name: str | None, tables: Mapping[str, Any]) -> str:
    if name is None:
        if len(tables) > 1:
            raise ConfigError(f"{path} has several changefeeds; name one of them: {', '.join(sorted(tables))}")
        return next(iter(tables))
    if name not in tables:
        raise ConfigError(f"{path} has no changefeed '{name}'{did_you_mean(name, tables)}")
    return name


def _read(path: Path) -> dict[str, Any]:
    """Return the tables of the changefeeds in the file, by name."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a mark first
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    return _tables(text, str(path))


def _tables(text: str, origin: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
        _require_bounded(document)
    except RecursionError as error:
        raise ConfigError(f"{origin}: keys or values are nested too deeply; remove some levels") from error
    except ValueError as error:  # also of a number with too many digits
        raise ConfigError(_syntax_error(origin, str(error))) from error
    for key in document:
        if key != "changefeed":
            raise ConfigError(f"{origin}: unknown key '{key}'; name the tables [changefeed.NAME]")
    tables = document.get("changefeed")
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(f"{origin} has no changefeed; add a table [changefeed.NAME]")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{origin}: [changefeed] has no name; write [changefeed.NAME] above '{name}'")
    return tables


def _require_bounded(document: dict[str, Any]) -> None:
    """Return if all that walks *document*, or writes its numbers, can. Raises: RecursionError, ValueError."""
    level: list[Any] = [document]
    for _ in range(_MAX_LEVELS):
        parts = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(part, int) and part.bit_length() > 64 for part in parts):
            raise ValueError("an integer has more than 64 bits")
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise RecursionError


def _syntax_error(origin: str, message: str) -> str:
    found = _AT_LINE.search(message)
    if found is None:
        return f"{origin}: {message}"
    return f"{origin}, line {found[1]}, column {found[2]}: {message[: found.start()]}"


def _changefeed(path: Path, name: str, table: dict[str, Any], environ: Mapping[str, str]) -> Changefeed:
    place = f"{path}: changefeed '{name}'"
    written = _written(place, table)
    if "source" not in table:
        raise ConfigError(f"{place} has no 'source'; set it to a URI, such as postgresql://user@host:5432/shop")
    if "tables" not in table and "query" not in table:
        raise ConfigError(f"{place} has no 'tables'; list the tables, or set a 'query' that names its table")
    return changefeed_of(name, with_absolute_files(written, path.absolute().parent), origin=str(path), environ=environ)


def _written(place: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return the definition in *table*, whose values have the right types. Raises: ConfigError."""
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{place}: unknown key '{key}'{_key_hint(key)}")
    require_types(place, table)
    written = {**table, "options": _plain(table.get("options", {})), "spark": _spark(place, table.get("spark", {}))}
    if "table" in table:
        written["table"] = _plain(table["table"])
    return written


def _key_hint(key: str) -> str:
    hint = did_you_mean(key, _KEYS)
    if "did you mean" in hint:
        return hint
    return f"{hint}; write options in the table [changefeed.NAME.options]"


def _plain(value: Any) -> Any:
    """Return *value* with TOML's dates and times as text, so that it is JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def _spark(place: str, table: dict[str, Any]) -> dict[str, str]:
    """Return Spark's configuration, flat: TOML reads a bare `spark.x.y = 1` as tables within tables."""
    flat = _flat(table)
    for key in flat:
        if key != "master" and not key.startswith("spark."):
            raise ConfigError(f"{place}, spark: '{key}' is neither 'master' nor a Spark property 'spark.…'")
    return flat


def _flat(table: dict[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": text for inner, text in _flat(value).items()}
        else:
            flat[key] = _text(value)
    return flat


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    readable = text.encode(errors="replace").decode()  # half of a surrogate pair is not text
    return json.dumps(readable, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
