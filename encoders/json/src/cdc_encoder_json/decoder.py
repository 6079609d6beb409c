"""Reads what the JSON encoder writes, for tests and audits. Numbers come back exact: int or Decimal, never float."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from cdc_core import Timestamp

__all__ = ["decode_key", "decode_lines", "decode_resolved", "decode_value"]

_MOST_INT_DIGITS = 4000
"""Python refuses to make an int of more digits than about this."""


def decode_value(payload: bytes) -> dict[str, Any]:
    """Return the envelope in a message's value, or the row that has none.

    Raises: ValueError when it is not one JSON object.
    """
    value = _decode(payload)
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {payload[:80]!r}")
    return value


def decode_key(payload: bytes) -> list[Any]:
    """Return the primary key's values in a message's key. Raises: ValueError when it is not one JSON array."""
    key = _decode(payload)
    if not isinstance(key, list):
        raise ValueError(f"not a JSON array: {payload[:80]!r}")
    return key


def decode_lines(body: bytes) -> list[dict[str, Any]]:
    """Return the envelopes in the body of a file. Raises: ValueError when its last line is cut off, or any is bad."""
    *lines, rest = body.split(b"\n")
    if rest:
        raise ValueError(f"the last line has no end: {rest[:80]!r}")
    return [decode_value(line) for line in lines]


def decode_resolved(payload: bytes | None, *, envelope: str = "wrapped") -> Timestamp | None:
    """Return the timestamp of a resolved payload, or None when *payload* is a row's value or tombstone."""
    if not payload:
        return None
    value: Any = decode_value(payload)
    if envelope != "wrapped":
        value = value["__crdb__"] if value.keys() == {"__crdb__"} else None
    return Timestamp.parse(value["resolved"]) if isinstance(value, dict) and value.keys() == {"resolved"} else None


def _decode(payload: bytes) -> Any:
    return json.loads(payload.decode(), parse_float=Decimal, parse_int=_integer, parse_constant=_refuse)


def _integer(text: str) -> int | Decimal:
    """Return an int, or a Decimal where an int would lose the sign of -0 or take too long."""
    return Decimal(text) if text == "-0" or len(text) > _MOST_INT_DIGITS else int(text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} without quotes is not JSON")
