"""Declared options: one frozen dataclass per component is the source of parsing, errors, documentation and masking.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class FileOptions:
        file_size: ByteSize = option(16 * MB, doc="Size at which a file is closed.")
        compression: Literal["none", "gzip", "zstd"] = option("none", doc="How files are compressed.")
        password: str | None = option(None, doc="Password of the store.", secret=True)

    options = parse_options(FileOptions, {"file_size": "32MB"}, owner="sink 'cloudstorage'")

Values may be text (from a URI) or TOML values. A field may have the types that `_parse` accepts.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NewType, TypeVar

from cdc_core.errors import OptionError
from cdc_core.locality import Locality
from cdc_core.masking import is_secret_name, masked_uri, secret_texts, secrets_of_uris, uri_secrets
from cdc_core.timestamp import Timestamp
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

Duration = NewType("Duration", float)
"""Seconds. Written `500ms`, `10s`, `1h30m`, or a bare number of seconds."""
ByteSize = NewType("ByteSize", int)
"""Bytes. Written `64KB`, `16MB`, `1GiB`, or a bare number of bytes; KB and KiB both mean 1024."""

Moment = NewType("Moment", str)
"""The text form of a `Timestamp`. Written as `Timestamp.read` accepts it."""
Position = NewType("Position", str)
"""A `Moment`, or any other text, which means a position in the history of a source."""
Tiers = NewType("Tiers", str)
"""The text form of a `Locality`. Written `region=eu-west-1,zone=a`."""

MB = 1024 * 1024

T = TypeVar("T")
_SIZES = {"": 1, "B": 1, "K": 1024, "M": MB, "G": 1024 * MB, "T": 1024 * 1024 * MB}
_LONG_WORD = 8
_MOST_LISTED = 20
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    secret: bool = False,
    uri: bool = False,
    flag: bool = False,
    place: bool = False,
) -> Any:
    """Declare one option as the default of a dataclass field. Without *default* the option must be given.

    *doc* is one or two sentences for the generated tables. A *secret* is masked everywhere, and so are the secrets in a
    *uri*, or in a list or table of URIs; neither is in the options' `repr`. Of an option that is both, all is masked,
    but the store keeps it if its secrets are references. A `Duration | None` may also be a *flag*: true is 0 s.
    For a sink, *place* says that another value makes its URI mean another place, such as another endpoint or account,
    where nothing was delivered yet. Such a value is recorded, so it must not be secret.
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


def option_names(cls: type) -> tuple[str, ...]:
    """Return the names of the options that *cls* declares, in order."""
    return tuple(field.name for field in dataclasses.fields(cls))


def parse_options(cls: type[T], values: Mapping[str, Any], *, owner: str) -> T:
    """Return an instance of *cls* from what the user wrote. Raises: OptionError, which names *owner*, option, remedy.

    An option that *cls* does not declare is an error. `table.entry` is an entry of the option `table`, if that is a
    dict; a dict or a list may also be given as JSON text. A `ValueError` of the class's own `__post_init__` becomes an
    OptionError too.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = _hints(cls)  # type: ignore[arg-type]
    values = _with_tables(values, {name for name in fields if _is_table(hints[name])}, owner=owner)
    for name in values:
        if name not in fields:
            raise OptionError(f"{owner} does not know option '{name}'{did_you_mean(name, fields)}")
    parsed: dict[str, Any] = {}
    for name, field in fields.items():
        if name in values:
            hidden = field.metadata.get("secret") or field.metadata.get("uri")
            shown = "***" if hidden else repr(values[name])
            try:
                parsed[name] = _parse(hints[name], values[name], flag=field.metadata.get("flag", False))
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
        field = fields.get(head if dot and _is_table(hints.get(head)) else name)
        if field is None:
            found[name] = f"is not known{did_you_mean(name, fields)}"
            continue
        given.add(field.name)
        try:
            _parse(hints[field.name], {entry: value} if dot else value, flag=field.metadata.get("flag", False))
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
    if len(names) > _MOST_LISTED:
        return f"; none of the {len(names)} known names is similar"
    return f"; known: {', '.join(names)}" if names else "; there are none"


def secret_values(options: Any) -> list[str]:
    """Return the secrets in an options instance, including those in its URIs and tables.

    Every text in a secret table is a secret, and so is every longer word of a secret text, such as the token in
    `Bearer …`.
    """
    found: list[str] = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.metadata.get("secret") and isinstance(value, Mapping):
            found += [text for entry in value.values() for text in _with_words(str(entry))]
        elif field.metadata.get("secret") and value:
            found += [*_with_words(str(value)), *sorted(uri_secrets(str(value)))]
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
                type=("flag or " if field.metadata.get("flag") else "") + _type_text(hint),
                default="(required)" if field.default is dataclasses.MISSING else _value_text(hint, field.default),
                doc=field.metadata.get("doc", ""),
                secret=bool(field.metadata.get("secret")),
            )
        )
    return rows


def counted(number: int, noun: str) -> str:
    """Return *number* and *noun* for people, such as `1 row` and `2,000 rows`. *noun* takes an s in the plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return *seconds* as users write a `Duration`."""
    micros = round(seconds * 1_000_000)
    for unit in ("d", "h", "m", "s", "ms", "us"):
        unit_micros = round(_UNITS[unit] * 1_000_000)
        if micros and micros % unit_micros == 0:
            return f"{micros // unit_micros}{unit}"
    return f"{seconds:g}s"


def format_bytes(size: int) -> str:
    """Return *size* as users write a `ByteSize`."""
    for unit in ("T", "G", "M", "K"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}B"
    return str(size)


@functools.cache
def _hints(cls: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields of *cls*: finding them costs more than parsing."""
    return typing.get_type_hints(cls)


def _parse(hint: Any, value: Any, *, flag: bool = False) -> Any:
    if flag and isinstance(value, bool | str) and str(value).lower() in ("true", "false", ""):
        return None if str(value).lower() == "false" else Duration(0.0)
    if _is_table(hint):
        return _parse_table(value)
    if hint is Duration:
        return read_duration(value)
    if hint is ByteSize:
        return _parse_bytes(value)
    if hint is Moment or hint is Position:
        return _parse_moment(value, position=hint is Position)
    if hint is Tiers:
        return str(Locality.parse(str(value)))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        text = str(value).lower()
        if text not in arguments:
            raise ValueError(f"must be one of {', '.join(arguments)}")
        return text
    if origin in (typing.Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return _parse(inner, value)
    if origin is tuple:
        value = json.loads(value) if str(value).lstrip().startswith("[") and isinstance(value, str) else value
        items = value if isinstance(value, list | tuple) else [part.strip() for part in str(value).split(",")]
        return tuple(_parse(arguments[0], item) for item in items if item != "")
    if hint is bool:
        return _parse_bool(value)
    if hint in (int, float):
        if isinstance(value, bool):
            raise ValueError("must be a number")
        try:
            return hint(value)
        except (TypeError, ValueError):
            raise ValueError("must be a whole number" if hint is int else "must be a number") from None
    if hint is str:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        return value
    raise TypeError(f"options cannot have the type {hint!r}")


def _is_table(hint: Any) -> bool:
    """Return whether an option of type *hint* is a dict, or a dict or None."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(choice is dict or typing.get_origin(choice) is dict for choice in choices)


def _with_tables(values: Mapping[str, Any], tables: set[str], *, owner: str) -> dict[str, Any]:
    """Return *values* with each `table.entry` moved into its table."""
    gathered = {name: value for name, value in values.items() if name.partition(".")[0] not in tables}
    for name, value in values.items():
        table, dot, entry = name.partition(".")
        if table not in tables:
            continue
        try:
            entries = {entry: value} if dot else _parse_table(value)
        except ValueError as error:
            raise OptionError(f"{owner}: option '{name}': {error}") from None
        known = gathered.setdefault(table, {})
        twice = min(known.keys() & entries.keys(), default=None)
        if twice is not None:
            raise OptionError(f"{owner} sets '{table}.{twice}' twice; keep one of them")
        known.update(entries)
    return gathered


def _parse_table(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"must be a table of names and values, or a JSON object ({error})") from None
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of names and values")
    return _Table(value)


class _Table(dict[str, Any]):
    """The value of a dict option. Its `repr` masks the values of secret-looking names."""

    def __repr__(self) -> str:
        shown = {
            name: "***" if is_secret_name(name) else _Table(value) if isinstance(value, Mapping) else value
            for name, value in self.items()
        }
        return repr(shown)


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in ("true", "yes", "on", "1", ""):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("must be true or false")


def read_duration(value: Any) -> Duration:
    """Return the duration that a person wrote. Raises: ValueError."""
    if isinstance(value, bool):
        raise ValueError("must be a duration such as 500ms, 10s or 1h30m")
    text = str(value).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return Duration(float(text))
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration such as 500ms, 10s or 1h30m")
    return Duration(sum(float(number) * _UNITS[unit] for number, unit in parts))


def _parse_bytes(value: Any) -> ByteSize:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:(B)|([KMGT])(?:i?B)?)?", str(value).strip(), re.IGNORECASE)
    if isinstance(value, bool) or found is None:
        raise ValueError("must be a size such as 64KB, 16MB or 1GB")
    return ByteSize(int(float(found.group(1)) * _SIZES[(found.group(3) or found.group(2) or "").upper()]))


def _parse_moment(value: Any, *, position: bool) -> str:
    if isinstance(value, float):
        raise ValueError("must be in quotes, as a number with a point loses digits")
    text = str(value).strip()
    try:
        return str(Timestamp.read(text))
    except ValueError:
        if not position or not text or isinstance(value, bool):
            raise
    return text


def _type_text(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Duration:
        return "duration"
    if hint is ByteSize:
        return "size"
    if hint is Moment or hint is Position:
        return "timestamp" if hint is Moment else "timestamp or position"
    if hint is Tiers:
        return "locality"
    if origin is Literal:
        return " | ".join(arguments)
    if origin in (typing.Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return _type_text(inner)
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    return {bool: "flag", int: "integer", float: "number", str: "text", dict: "table"}.get(origin or hint, str(hint))


def _value_text(hint: Any, value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if hint is Duration:
        return format_duration(value)
    if hint is ByteSize:
        return format_bytes(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "(none)"
    return str(value) if value != "" else '""'
