"""The values of options: which types an option may have, how people write them, and how they are shown."""

from __future__ import annotations

import functools
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NewType

from cdc_core.locality import Locality
from cdc_core.masking import is_secret_name
from cdc_core.timestamp import Timestamp

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

_SIZES = {"": 1, "B": 1, "K": 1024, "M": MB, "G": 1024 * MB, "T": 1024 * 1024 * MB}
_MAX_BYTES, _MAX_DAYS = 1 << 63, 36_500
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_value(hint: Any, value: Any, *, flag: bool = False) -> Any:
    """Return *value*, text or a TOML value, as the type *hint*; of a *flag*, true is 0 s and false is None.

    Raises: ValueError, whose text follows `option 'x' is y:`; TypeError when options cannot have that type.
    """
    if flag and isinstance(value, bool | str) and str(value).lower() in ("true", "false", ""):
        return None if str(value).lower() == "false" else Duration(0.0)
    if is_table(hint):
        return parse_table(value)
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
        return parse_value(inner, value)
    if origin is tuple:
        if isinstance(value, Mapping):
            raise ValueError("must be a list")
        value = _from_json(value) if str(value).lstrip().startswith("[") and isinstance(value, str) else value
        items = value if isinstance(value, list | tuple) else [part.strip() for part in str(value).split(",")]
        return tuple(parse_value(arguments[0], item) for item in items if item != "")
    if hint is bool:
        return _parse_bool(value)
    if hint in (int, float):
        try:
            number = hint(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or isinstance(value, bool) or (isinstance(value, float) and number != value):
            raise ValueError("must be a whole number" if hint is int else "must be a number")
        return number
    if hint is str:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        return value
    raise TypeError(f"options cannot have the type {hint!r}")


def is_option_type(hint: Any) -> bool:
    """Return whether an option can have the type *hint*: whether `parse_value` can return each of its values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return all(isinstance(choice, str) and choice == choice.lower() for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return len(arguments) == 2 and type(None) in arguments and all(map(is_option_type, arguments))
    if origin is tuple:
        return arguments[1:] == (...,) and is_option_type(arguments[0])
    return hint in (str, int, float, bool, type(None), Duration, ByteSize, Moment, Position, Tiers) or is_table(hint)


@functools.cache
def is_table(hint: Any) -> bool:
    """Return whether an option of type *hint* is a dict, or a dict or None."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(choice is dict or typing.get_origin(choice) is dict for choice in choices)


def parse_table(value: Any) -> dict[str, Any]:
    """Return the value of a dict option, a table or JSON text. Raises: ValueError."""
    if isinstance(value, str):
        try:
            value = _from_json(value)
        except ValueError as error:
            raise ValueError(f"must be a table of names and values, or a JSON object ({error})") from None
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of names and values")
    return _Table(value)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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
        text += "s"
    parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration such as 500ms, 10s or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _MAX_DAYS * _UNITS["d"]:
        raise ValueError(f"must be at most {_MAX_DAYS}d")
    return Duration(seconds)


def _parse_bytes(value: Any) -> ByteSize:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:(B)|([KMGT])(?:i?B)?)?", str(value).strip(), re.IGNORECASE)
    if isinstance(value, bool) or found is None:
        raise ValueError("must be a size such as 64KB, 16MB or 1GB")
    size = float(found.group(1)) * _SIZES[(found.group(3) or found.group(2) or "").upper()]
    if size >= _MAX_BYTES:
        raise ValueError(f"must be less than {format_bytes(_MAX_BYTES)}")
    return ByteSize(int(size))


def _parse_moment(value: Any, *, position: bool) -> str:
    if isinstance(value, float):
        raise ValueError("must be in quotes, because a number with a decimal point loses digits")
    text = str(value).strip()
    try:
        return str(Timestamp.read(text))
    except ValueError:
        if not position or not text or isinstance(value, bool) or Timestamp.is_number(text):
            raise
    return text


def format_duration(seconds: float) -> str:
    """Return *seconds* in the form of a `Duration`, such as `10s`."""
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


def type_text(hint: Any) -> str:
    """Return what the documentation calls the type *hint*."""
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
        return type_text(inner)
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    return {bool: "flag", int: "integer", float: "number", str: "text", dict: "table"}.get(origin or hint, str(hint))


def default_text(hint: Any, value: Any) -> str:
    """Return the default *value* as the documentation shows it."""
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
