"""References to secrets and settings: `${VAR}` and `${file:PATH}` in texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc_core.errors import ConfigError

__all__ = ["interpolate"]

_REFERENCE = re.compile(r"\$(?P<escape>\$(?=\{))|\$\{(?P<inner>[^}]*)(?P<end>\}?)")


def interpolate(value: Any, *, place: str, directory: Path, environ: Mapping[str, str]) -> Any:
    """Return *value* with the references in its texts replaced, also inside tables and lists.

    `${VAR}` is a variable of *environ*; `${file:PATH}` is the content of a file without trailing line ends, where PATH
    is relative to *directory*; `$${` is the text `${`. *place* names the value in messages.

    Raises: ConfigError, which names the missing variable or file.
    """
    if isinstance(value, Mapping):
        return {
            key: interpolate(inner, place=f"{place}.{key}", directory=directory, environ=environ)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [interpolate(inner, place=place, directory=directory, environ=environ) for inner in value]
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _replaced(found, place, directory, environ), value)
    return value


def _replaced(found: re.Match[str], place: str, directory: Path, environ: Mapping[str, str]) -> str:
    if found["escape"]:
        return "$"
    inner = found["inner"]
    if not found["end"]:
        raise ConfigError(f"{place} has '${{' without '}}'; write '$${{' for the two characters themselves")
    if inner.startswith("file:"):
        return _content(directory / Path(inner.removeprefix("file:")).expanduser(), place)
    if not inner:
        raise ConfigError(f"{place} has '${{}}' without a name; write ${{VARIABLE}} or ${{file:PATH}}")
    if inner not in environ:
        raise ConfigError(f"{place} needs the environment variable '{inner}', which is not set")
    return environ[inner]


def _content(path: Path, place: str) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{place} needs the file '{path}', which cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place} needs the file '{path}', which is not UTF-8 text") from error
