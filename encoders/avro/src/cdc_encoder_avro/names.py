"""Avro names of SQL names, and back.

An Avro name has ASCII letters, digits and underscores, and does not begin with a digit. Every other character becomes
`_uXXXX_`, its code in hexadecimal digits: `total (EUR)` is `total_u0020__u0028_EUR_u0029_`. An underscore that would
look like the start of an escape is escaped too. This makes escaping reversible, and different names remain different.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIKE_AN_ESCAPE = r"_(?=u[0-9a-f]{4,6}[^A-Za-z0-9])"
_TO_ESCAPE = re.compile(rf"[^A-Za-z0-9_]|^[0-9]|{_LIKE_AN_ESCAPE}")
_PRIMITIVES = frozenset({"boolean", "bytes", "double", "float", "int", "long", "null", "string"})
_ESCAPE = re.compile(r"_u([0-9a-f]{4,6})_")


def avro_name(name: str) -> str:
    """Return the Avro name of *name*, which must not be empty.

    A name that Avro accepts is unchanged, unless a part of it looks like an escape.
    """
    return _TO_ESCAPE.sub(lambda found: f"_u{ord(found.group()):04x}_", name)


def avro_type_name(name: str, suffix: str) -> str:
    """Return the Avro name of a type called *name* with a *suffix*. Unlike a field, it may not be called `string`."""
    escaped = avro_name(name) + suffix
    return f"_u{ord(escaped[0]):04x}_{escaped[1:]}" if escaped in _PRIMITIVES else escaped


def sql_name(name: str) -> str:
    """Return the inverse of `avro_name`."""
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), name)


def avro_namespace(prefix: str) -> str:
    """Return *prefix* as a namespace, names separated by dots: `com.example.` becomes `com.example`."""
    return ".".join(avro_name(part) for part in prefix.split(".") if part)


def is_avro_name(name: str) -> bool:
    """Return whether Avro accepts *name*."""
    return _NAME.fullmatch(name) is not None
