"""Declared options: one frozen dataclass per component is the source of parsing, errors, documentation and masking.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class FileOptions:
        file_size: ByteSize = option(16 * MB, doc="Size at which a file is closed.")
        compression: Literal["none", "gzip", "zstd"] = option("none", doc="How files are compressed.")
        password: str | None = option(None, doc="Password of the store.", secret=True)

    options = parse_options(FileOptions, {"file_size": "32MB"}, owner="sink 'cloudstorage'")

Values may be text (from a URI) or TOML values. A field may have the types that `parse_value` accepts.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cdc_core.errors import OptionError
from cdc_core.masking import masked_uri, secret_texts, secrets_of_uris, uri_secrets
from cdc_core.option_values import (
    MB,
    ByteSize,
    Duration,
    Moment,
    Position,
    Tiers,
    default_text,
    format_bytes,
    format_duration,
    is_option_type,
    is_table,
    parse_table,
    parse_value,
    read_duration,
    type_text,
)
from cdc_core.uris import place_of

__all__ = [
    "MB",
    "ByteSize",
    "Duration",
    "Moment",
    "OptionDoc",
    "Position",
    "Tiers",
    "counted",
    "describe",
    "did_you_mean",
    "format_bytes",
    "format_duration",
    "option",
    "option_names",
    "option_problems",
    "parse_options",
    "place_values",
    "read_duration",
    "secret_values",
]

T = TypeVar("T")
_LONG_WORD = 8
_MAX_LISTED = 20


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    secret: bool = False,
    uri: bool = False,
    flag: bool = False,
    place: bool = False,
) -> Any:
    """Declare one option as the default of a dataclass field. Without *default*, the option is required.

    *doc* is one or two sentences for the generated tables. A *secret* is masked everywhere, and so are the secrets in a
    *uri*, or in a list or table of URIs; the options' `repr` shows neither. If an option is both, its whole value is
    masked if it has a user or a secret, and the store keeps the value if its secrets are references. A `Duration |
    None` may also be a *flag*: true is 0 s. For a sink, *place* says that with another value, the URI means another
    place, such as another endpoint or account, where nothing was delivered yet. Such a value is recorded, so it must
    not be secret.
    """
    metadata = {"doc": doc, "secret": secret, "uri": uri, "flag": flag, "place": place}
    return dataclasses.field(default=default, metadata=metadata, repr=not (secret or uri))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDoc:
    """One row of a generated options table."""

    name: str
    type: str
    default: str
    doc: str
    secret: bool


def fault_of(cls: type) -> str:
    """Say what is wrong with *cls* as the class of a component's options; empty if nothing is."""
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "is not a frozen dataclass"
    for field in dataclasses.fields(cls):
        if "doc" not in field.metadata:
            return f"declares '{field.name}' without cdc_core.option(…, doc=…)"
        if not is_option_type(_hints(cls)[field.name]):
            return f"declares '{field.name}' as {field.type}, which cannot be the type of an option"
    return ""


def option_names(cls: type) -> tuple[str, ...]:
    """Return the names of the options that *cls* declares, in order."""
    return tuple(field.name for field in dataclasses.fields(cls))


def parse_options(cls: type[T], values: Mapping[str, Any], *, owner: str) -> T:
    """Return an instance of *cls* with the user's values. Raises: OptionError, which names *owner*, option and remedy.

    An option that *cls* does not declare is an error. `table.entry` is an entry of the option `table`, if that is a
    dict; a dict or a list may also be given as JSON text. A `ValueError` from the class's `__post_init__` becomes an
    OptionError too.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = _hints(cls)  # type: ignore[arg-type]
    values = _with_tables(values, {name for name in fields if is_table(hints[name])}, owner=owner)
    for name in values:
        if name not in fields:
            raise OptionError(f"{owner} has no option '{name}'{did_you_mean(name, fields)}")
    parsed: dict[str, Any] = {}
    for name, field in fields.items():
        if name in values:
            hidden = field.metadata.get("secret") or field.metadata.get("uri")
            shown = "***" if hidden else repr(values[name])
            try:
                parsed[name] = parse_value(hints[name], values[name], flag=field.metadata.get("flag", False))
            except ValueError as error:
                raise OptionError(f"{owner}: option '{name}' is {shown}: {error}") from None
        elif field.default is dataclasses.MISSING:
            raise OptionError(f"{owner} needs option '{name}': {field.metadata['doc']}")
    try:
        return cls(**parsed)
    except ValueError as error:
        raise OptionError(f"{owner}: {error}") from None


def option_problems(cls: type, values: Mapping[str, Any]) -> dict[str, str]:
    """Return by name what is wrong with single *values*, and which options are missing. Shows no value.

    What is wrong with values together, only `parse_options` tells.
    """
    fields, hints = {field.name: field for field in dataclasses.fields(cls)}, _hints(cls)
    found: dict[str, str] = {}
    given = set()
    for name, value in values.items():
        head, dot, entry = name.partition(".")
        field = fields.get(head if dot and is_table(hints.get(head)) else name)
        if field is None:
            found[name] = f"is not known{did_you_mean(name, fields)}"
            continue
        given.add(field.name)
        try:
            parse_value(hints[field.name], {entry: value} if dot else value, flag=field.metadata.get("flag", False))
        except ValueError as error:
            found[name] = str(error)
    for name in fields.keys() - given:
        if fields[name].default is dataclasses.MISSING:
            found[name] = f'Missing required configuration "{name}" which has no default value.'
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` when a known name is close to *name*, otherwise the known names if they are few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    if len(names) > _MAX_LISTED:
        return f"; none of the {len(names)} known names is similar"
    return f"; known: {', '.join(names)}" if names else "; there are none"


def secret_values(options: Any) -> list[str]:
    """Return the secrets in an options instance, including those in its URIs and tables.

    Every text in a secret table is a secret. So is every longer word of a secret text, such as the token in `Bearer …`.
    """
    found: list[str] = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.metadata.get("secret") and isinstance(value, Mapping):
            found += [text for entry in value.values() for text in _with_words(str(entry))]
        elif field.metadata.get("secret") and value:
            inner = uri_secrets(str(value))
            if inner or not (field.metadata.get("uri") and _is_anonymous(str(value))):
                found += [*_with_words(str(value)), *sorted(inner)]
        elif field.metadata.get("uri") and value:
            found += sorted(secrets_of_uris(value))
        elif isinstance(value, Mapping):
            found.extend(secret_texts(value))
    return found


def place_values(options: Any) -> dict[str, str]:
    """Return the values of an options instance that decide on a place, unless they are the default.

    A URI is returned without user, parameters and final slash: it holds no secret.
    """
    found: dict[str, str] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.metadata.get("place") and value != field.default:
            found[field.name] = place_of(masked_uri(str(value))) if field.metadata.get("uri") else str(value)
    return found


def _is_anonymous(uri: str) -> bool:
    """Return whether *uri* is one without a user, which may be a token."""
    return "://" in uri and "@" not in uri


def _with_words(secret: str) -> Iterator[str]:
    yield secret
    yield from (word for word in secret.split() if len(word) >= _LONG_WORD and word != secret)


def describe(cls: type) -> list[OptionDoc]:
    """Return the rows of the options table of *cls*, in order."""
    hints = _hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        rows.append(
            OptionDoc(
                name=field.name,
                type=("flag or " if field.metadata.get("flag") else "") + type_text(hint),
                default="(required)" if field.default is dataclasses.MISSING else default_text(hint, field.default),
                doc=field.metadata.get("doc", ""),
                secret=bool(field.metadata.get("secret")),
            )
        )
    return rows


def counted(number: int, noun: str) -> str:
    """Return *number* and *noun* as text, such as `1 row` and `2,000 rows`. The plural of *noun* gets an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@functools.cache
def _hints(cls: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields of *cls*: finding them costs more than parsing."""
    return typing.get_type_hints(cls)


def _with_tables(values: Mapping[str, Any], tables: set[str], *, owner: str) -> dict[str, Any]:
    """Return *values* with each `table.entry` moved into its table."""
    gathered = {name: value for name, value in values.items() if name.partition(".")[0] not in tables}
    for name, value in values.items():
        table, dot, entry = name.partition(".")
        if table not in tables:
            continue
        try:
            entries = {entry: value} if dot else parse_table(value)
        except ValueError as error:
            raise OptionError(f"{owner}: option '{name}': {error}") from None
        known = gathered.setdefault(table, {})
        twice = min(known.keys() & entries.keys(), default=None)
        if twice is not None:
            raise OptionError(f"{owner} sets '{table}.{twice}' twice; keep one of them")
        known.update(entries)
    return gathered
