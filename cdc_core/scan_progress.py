"""How far a scan is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ScanProgress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """How much of an initial scan or a backfill lies behind a token. `unit` names what is counted, such as 'chunks'."""

    done: int
    total: int
    unit: str
