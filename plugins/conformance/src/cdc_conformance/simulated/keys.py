"""Encodes integer primary keys as the bytes of spans, in the same order."""

from __future__ import annotations

__all__ = ["END_KEY", "key_of"]

_OFFSET = 2**63
END_KEY = b"\xff" * 9
"""Greater than the key of every row."""


def key_of(id_: int) -> bytes:
    """Return the key of the row with this `id`. Raises: OverflowError beyond 64 bits."""
    return (id_ + _OFFSET).to_bytes(8, "big")
