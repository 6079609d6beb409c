"""Options of the archive."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import option

__all__ = ["ArchiveOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of the archive."""

    password: str | None = option(None, doc="Not used. Tests check that it is never shown.", secret=True)
