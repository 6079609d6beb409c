"""The form of a changefeed as the text of a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core.config.flat import flat, unflattened
from cdc_core.config.toml_file import definition_in, toml_text
from cdc_core.errors import ConfigError
from cdc_core.web.config_keys import ConfigKey
from cdc_core.web.page.forms import config_in
from cdc_core.web.page.requests import MAX_ENTRIES

__all__ = ["text_of", "values_in", "values_of"]


def text_of(values: Mapping[str, str], keys: Sequence[ConfigKey]) -> str:
    """Return the file that the form describes, without values that cannot be written there; empty for an empty form.

    *keys* are those of what is chosen.
    """
    config = {name: text for name, text in config_in(values).items() if text and name != "connector.class"}
    if not config:
        return ""
    written, types = unflattened(config).written, {key.option: key.type for key in keys}
    options = {name: _typed(text, types.get(name)) for name, text in written["options"].items()}
    return toml_text(config.get("name", ""), {**written, "options": options})


def values_in(text: str) -> dict[str, str]:
    """Return the form that the file *text* describes. Raises: ConfigError when it cannot be read, or is too large."""
    name, written = definition_in(text, origin="the text")
    values = values_of(name, {"written": written})
    if len(values) > MAX_ENTRIES:
        raise ConfigError(f"the text has {len(values)} entries, and the form holds {MAX_ENTRIES}; use cdc create")
    return values


def values_of(name: str, definition: Mapping[str, Any]) -> dict[str, str]:
    """Return the form of the changefeed *name* with this *definition*, as it was written."""
    written = definition.get("written") or definition
    values = {"name": name, **{key: str(value) for key, value in flat(written).items()}}
    if "tables" in values and not values["tables"].startswith("["):
        values["tables"] = values["tables"].replace(",", "\n")
    return values


def _typed(text: str, kind: str | None) -> str | bool | int:
    """Return a value as people write it in a file: flags and numbers have no quotes."""
    if kind == "BOOLEAN" and text in ("true", "false"):
        return text == "true"
    return int(text) if kind == "LONG" and text.isascii() and text.isdecimal() and len(text) < 19 else text
