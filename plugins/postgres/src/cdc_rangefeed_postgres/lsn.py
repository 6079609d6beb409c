"""LSNs: places in PostgreSQL's log, as integers and as PostgreSQL writes them."""

from __future__ import annotations

__all__ = ["lsn_text", "parse_lsn"]


def parse_lsn(text: str) -> int:
    """Return the LSN that PostgreSQL writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return *lsn* as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
