"""What changefeeds have created on a source, as `Rangefeed.created` lists it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SourceObjects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObjects:
    """What one changefeed has created. A rangefeed built with the same `changefeed` and `feed_id` drops it."""

    name: str
    """What people know it by, such as the name of a replication slot. No two entries have the same."""
    changefeed: str
    """Name of the changefeed, as far as the source still knows it."""
    feed_id: str
    kinds: tuple[str, ...]
    """What it consists of, such as "replication slot" and "publication"."""
    retained_bytes: int | None = None
    """How much history the source retains for it, None when that is unknown."""
    sure: bool = True
    """Whether a changefeed created it for sure. Otherwise it may be another program's that is named alike."""
    active: bool = False
    """Whether a process uses it now. A changefeed that is stopped or between two steps need not."""
