"""References to secrets and settings: `${VAR}` and `${file:PATH}` in texts."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cdc_core.errors import ConfigError

_REFERENCE = re.compile(r"\$(?P<escape>\$(?=\{))|\$\{(?P<inner>[^}]*)(?P<end>\}?)")

_FILE = re.compile(r"(?P<escape>\$\$(?=\{))|\$\{file:(?P<path>[^}]*)\}")
_MAX_FILE_BYTES = 1 << 20
"""As Kubernetes has it for secrets."""
_FIRST_CUT, _LAST_CUT = "\ue000", "\uf8ff"


def interpolate(value: Any, *, place: str, environ: Mapping[str, str]) -> Any:
    """Return *value* with the references in its texts replaced, also inside tables and lists.

    `${VAR}` is a variable of *environ*; `${file:PATH}` is the content of a regular file of at most 1 MiB, without
    trailing line ends; `$${` is the text `${`. *place* names the value in messages. Apply `with_absolute_files` first.

    Raises: ConfigError, which names the missing variable or file.
    """
    if isinstance(value, Mapping):
        return {key: interpolate(inner, place=f"{place}.{key}", environ=environ) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, place=place, environ=environ) for inner in value]
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _replaced(found, place, environ), value)
    return value


def _replaced(found: re.Match[str], place: str, environ: Mapping[str, str]) -> str:
    if found["escape"]:
        return "$"
    inner = found["inner"]
    if not found["end"]:
        raise ConfigError(f"{place} has '${{' without '}}'; write '$${{' for a literal '${{'")
    if inner.startswith("file:"):
        return _content(Path(os.path.expanduser(inner.removeprefix("file:"))), place)
    if not inner:
        raise ConfigError(f"{place} has '${{}}' without a name; write ${{VARIABLE}} or ${{file:PATH}}")
    if inner not in environ:
        raise ConfigError(f"{place} needs the environment variable '{inner}', which is not set")
    value = environ[inner]
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{place} needs the environment variable '{inner}', which is not UTF-8 text")
    return value


def _content(path: Path, place: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
                raise ConfigError(f"{place} needs the file '{path}', which is not a regular file of at most 1 MiB")
            return file.read(_MAX_FILE_BYTES).rstrip("\r\n")
    except OSError as error:
        text = f"{place} needs the file '{path}', which cannot be read: {error.strerror}"
        raise ConfigError(text, repairable=True) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place} needs the file '{path}', which is not UTF-8 text") from error


def _open_at_once(path: str, flags: int) -> int:
    """Return *path* opened without waiting, as for a FIFO's writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def with_absolute_files(value: Any, directory: Path) -> Any:
    """Return *value* with each relative `${file:PATH}` in its texts made absolute, so that it means one file anywhere.

    A path that begins with `~` stays: it means the home directory of whoever runs the changefeed.
    """

    def absolute(found: re.Match[str]) -> str:
        if found["escape"] or found["path"].startswith("~"):
            return found[0]
        return f"${{file:{directory / found['path']}}}"

    return _mapped(value, lambda text: _FILE.sub(absolute, text))


def file_references(value: Any) -> list[str]:
    """Return the paths of the files that the texts in *value* refer to, also in tables and lists."""
    paths: list[str] = []

    def note(text: str) -> str:
        paths.extend(found["path"] for found in _FILE.finditer(text) if not found["escape"])
        return text

    _mapped(value, note)
    return paths


def reference_values(value: Any, *, environ: Mapping[str, str]) -> frozenset[str]:
    """Return what the references in *value* stand for, those that stand for nothing left out."""
    found: set[str] = set()

    def resolve(text: str) -> str:
        for reference in cut_references(text)[1]:
            with suppress(ConfigError):
                found.add(interpolate(reference, place="", environ=environ))
        return text

    _mapped(value, resolve)
    return frozenset(found - {""})


def escaped(value: Any) -> Any:
    """Return *value* so that `interpolate` returns the texts in it as they are now."""
    return _mapped(value, lambda text: text.replace("${", "$${"))


def has_references(value: Any) -> bool:
    """Return whether a text, or one in a table or a list, has references."""
    if isinstance(value, Mapping):
        return any(map(has_references, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_references, value))
    return isinstance(value, str) and bool(cut_references(value)[1])


def cut_references(text: str) -> tuple[str, list[str]]:
    """Return *text* with one character in place of each reference, for `by_reference`; and the references, in order."""
    references: list[str] = []

    def cut(found: re.Match[str]) -> str:
        if found["escape"] or not found["end"]:
            return found[0]
        references.append(found[0])
        return chr(ord(_FIRST_CUT) + len(references) - 1)

    return _REFERENCE.sub(cut, text), references


def fill_references(text: str, references: list[str]) -> str:
    """Return *text*, a result of `cut_references`, with its references again."""
    for number, reference in enumerate(references):
        text = text.replace(chr(ord(_FIRST_CUT) + number), reference)
    return text


def by_reference(text: str, *, between: str = "") -> bool:
    """Return whether *text*, a part of a result of `cut_references`, is references alone and characters *between*."""
    return all(_FIRST_CUT <= character <= _LAST_CUT or character in between for character in text)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value
