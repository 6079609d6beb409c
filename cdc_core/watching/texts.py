"""Keys and values of messages as text for people."""

from __future__ import annotations


def text_or_hex(value: bytes | None) -> str | None:
    r"""Return *value* as text; bytes that are none as hexadecimal digits after \x, as PostgreSQL and CockroachDB do."""
    if value is None:
        return None
    return value.decode() if is_text(value) else f"\\x{value.hex()}"


def is_text(value: bytes | None) -> bool:
    """Return whether *value* can be shown as text."""
    try:
        return value is None or "\0" not in value.decode()
    except UnicodeDecodeError:
        return False
