"""Names that Avro accepts, made from names that SQL accepts, and back.

An Avro name is ASCII letters, digits and underscores, and begins with no digit. Every other character is written as
`_uXXXX_`, its code in hexadecimal digits: `total (EUR)` becomes `total_u0020__u0028_EUR_u0029_`. So that this can be
undone, an underscore that would begin such an escape by accident is escaped itself. No two names become the same one.
"""

from __future__ import annotations

import re

__all__ = ["avro_name", "avro_namespace", "is_avro_name", "sql_name"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIKE_AN_ESCAPE = r"_(?=u[0-9a-f]{4,6}[^A-Za-z0-9])"
_TO_ESCAPE = re.compile(rf"[^A-Za-z0-9_]|^[0-9]|{_LIKE_AN_ESCAPE}")
_ESCAPE = re.compile(r"_u([0-9a-f]{4,6})_")


def avro_name(name: str) -> str:
    """Return the Avro name of *name*, which is not empty; a name that Avro accepts mostly stays as it is."""
    return _TO_ESCAPE.sub(lambda found: f"_u{ord(found.group()):04x}_", name)


def sql_name(name: str) -> str:
    """Return the name that `avro_name` made *name* of."""
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), name)


def avro_namespace(prefix: str) -> str:
    """Return *prefix* as a namespace, names with dots between them: `com.example.` becomes `com.example`."""
    return ".".join(avro_name(part) for part in prefix.split(".") if part)


def is_avro_name(name: str) -> bool:
    """Return whether Avro accepts *name*."""
    return _NAME.fullmatch(name) is not None
