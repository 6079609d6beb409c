"""Cuts JSON into the texts of its parts. No digit of a number and no blank of a nested text is lost."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_MAX_INT_DIGITS = 4000
"""Python refuses to convert a text of many more digits to an int."""
_BLANKS = re.compile(r"[ \t\n\r]*")


def split_object(text: str) -> dict[str, str]:
    """Return the texts of the members of the JSON object *text*, by name. Raises: ValueError."""
    members: dict[str, str] = {}
    place = _start(text, "{")
    while text[place : place + 1] != "}":
        if text[place : place + 1] != '"':
            raise _wrong(text, place)
        name, place = _scan(text, place)
        place = _after(text, place)
        if text[place : place + 1] != ":":
            raise _wrong(text, place)
        start = _after(text, place + 1)
        end = _scan(text, start)[1]
        if name in members:
            raise ValueError(f"an object has the member {name!r} twice")
        members[name] = text[start:end]
        place = _next(text, end, "}")
    _finish(text, place)
    return members


def split_array(text: str) -> list[str]:
    """Return the texts of the items of the JSON array *text*. Raises: ValueError."""
    items: list[str] = []
    place = _start(text, "[")
    while text[place : place + 1] != "]":
        end = _scan(text, place)[1]
        items.append(text[place:end])
        place = _next(text, end, "]")
    _finish(text, place)
    return items


def string(text: str) -> str:
    """Return the value of the JSON string *text*. Raises: ValueError."""
    if not text.startswith('"'):
        raise _wrong(text, 0)
    found, end = _scan(text)
    if end != len(text):
        raise _wrong(text, end)
    return str(found)


def plain(text: str | bytes) -> Any:
    """Return the value of any JSON *text*. Numbers are exact: int or Decimal. Raises: ValueError."""
    return json.loads(text, parse_float=Decimal, parse_int=_integer, parse_constant=_refuse)


def _integer(text: str) -> int | Decimal:
    """Return an int, or a Decimal for -0 and for numbers of very many digits."""
    return Decimal(text) if text == "-0" or len(text) > _MAX_INT_DIGITS else int(text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} without quotes is not JSON")


_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode
"""Returns the value that begins at a place, and the place after it."""


def _start(text: str, bracket: str) -> int:
    place = _after(text, 0)
    if text[place : place + 1] != bracket:
        raise _wrong(text, place)
    return _after(text, place + 1)


def _next(text: str, end: int, bracket: str) -> int:
    """Return the place of the next member, or of the closing *bracket*."""
    place = _after(text, end)
    found = text[place : place + 1]
    if found == bracket:
        return place
    following = _after(text, place + 1)
    if found != "," or text[following : following + 1] == bracket:
        raise _wrong(text, place)
    return following


def _finish(text: str, bracket: int) -> None:
    place = _after(text, bracket + 1)
    if place != len(text):
        raise _wrong(text, place)


def _after(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    assert found is not None
    return found.end()


def _wrong(text: str, place: int) -> ValueError:
    return ValueError(f"unexpected JSON at {text[place : place + 40]!r}")
