"""A definition as names and texts, which is how Kafka Connect configures a connector, and back.

| name | stands for |
|---|---|
| `source`, `sink`, `format`, `query` | the same; several sources are a JSON list |
| `tables` | the tables, separated by commas, or as a JSON list |
| `table.NAME` | the section of the table NAME, as a JSON object |
| `functions.NAME` | the text of the function NAME |
| `master`, `spark.…` | the Spark master, and Spark properties |
| `options.NAME` | the option NAME, where NAME alone would be one of the above |
| any other name | the option of that name; `option.entry` is an entry of an option that is a table |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_core.config.interpolation import file_references

_TEXTS = ("source", "sink", "format", "query")
_PARTS = (*_TEXTS, "tables", "table", "functions", "master", "options")
_OURS = ("name", "connector.class", "tasks.max")
_PREFIXES = ("table.", "functions.", "options.", "spark.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unflattened:
    """A definition as `Changefeed.written`, and by name what is wrong."""

    written: Mapping[str, Any]
    problems: Mapping[str, str]


def flat(written: Mapping[str, Any]) -> dict[str, str]:
    """Return the definition *written*, as `Changefeed.written`, by names; secrets stay references."""
    found: dict[str, str] = {}
    for name in _TEXTS:
        if written.get(name) is not None:
            found[name] = written[name] if isinstance(written[name], str) else json.dumps(list(written[name]))
        if name == "source" and written.get("tables"):
            found["tables"] = _listed(written["tables"])
    for table, section in (written.get("table") or {}).items():
        found[f"table.{table}"] = json.dumps(section, ensure_ascii=False)
    for name, text in (written.get("functions") or {}).items():
        found[f"functions.{name}"] = text
    return found | flat_options(written.get("options") or {}) | dict(written.get("spark") or {})


def flat_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options by their names in a flat definition."""
    return {name if option_of(name) == name else f"options.{name}": text for name, text in _options(options)}


def option_of(name: str) -> str | None:
    """Return the option that *name* stands for in a flat definition, None when it stands for something else."""
    if name.startswith("options."):
        return name.removeprefix("options.")
    return None if name in _PARTS or name in _OURS or name.startswith(_PREFIXES) else name


def unflattened(config: Mapping[str, str]) -> Unflattened:
    """Return the definition that *config* stands for. What is wrong with a single value is left out of it."""
    written: dict[str, Any] = {"options": {}, "spark": {}}
    problems: dict[str, str] = {}
    for name, text in config.items():
        if name in _OURS:
            continue
        try:
            _require_absolute_files(text)
            _put(written, name, text)
        except ValueError as error:
            problems[name] = str(error)
    for name in ("source", "sink"):
        if not config.get(name, "").strip():
            problems[name] = f'Missing required configuration "{name}" which has no default value.'
    if "tables" not in config and "query" not in config:
        problems["tables"] = "list the tables, or set a query that names its table"
    return Unflattened(written=written, problems=problems)


def _put(written: dict[str, Any], name: str, text: str) -> None:
    option = option_of(name)
    head, dot, rest = name.partition(".")
    if option is not None:
        if not option:
            raise ValueError("the name of the option is missing")
        if option in written["options"]:
            raise ValueError(f"option '{option}' is set twice; keep one of them")
        written["options"][option] = text
    elif name == "source":
        written["source"] = _items(text) if text.lstrip().startswith("[") else text
    elif name == "tables":
        written["tables"] = _items(text) if text.lstrip().startswith("[") else _split(text)
    elif name in _TEXTS:
        written[name] = text
    elif name == "master" or head == "spark":
        written["spark"][name] = text
    elif not dot or not rest:
        raise ValueError(f"write {head}.NAME, with a name after the dot")
    elif head == "functions":
        written.setdefault("functions", {})[rest] = text
    else:
        written.setdefault("table", {})[rest] = _object(text)


def _options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            for entry, inner in value.items():
                yield f"{name}.{entry}", _text(inner)
        elif value is not None:
            yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return _listed(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else str(value)


def _listed(values: Any) -> str:
    plain = all(isinstance(value, str) for value in values)
    text = ",".join(values) if plain else ""
    return text if plain and _split(text) == list(values) and not text.startswith("[") else json.dumps(list(values))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _items(text: str) -> list[str]:
    value = _json(text)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return value


def _object(text: str) -> dict[str, Any]:
    value = _json(text)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("must be JSON") from None


def _require_absolute_files(text: str) -> None:
    for path in file_references(text):
        if not (path.startswith("~") or Path(path).is_absolute()):
            raise ValueError(
                f"'{path}' is a relative path, but nodes have different directories; write the absolute path"
            )
