"""Events for validators in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_conformance.validators import SeenMark, SeenRow, Validator

from cdc_core import Timestamp


def row(
    key: str,
    updated: int,
    after: Mapping[str, Any] | None = None,
    *,
    topic: str = "t",
    at: int | None = None,
    **more: Any,
) -> SeenRow:
    """Return a row of *topic*, in partition *at*; without *after* it is a delete."""
    return SeenRow(topic=topic, partition=at, key=(key,), after=after, updated=Timestamp(updated), **more)


def mark(resolved: int, *, topic: str | None = None, at: int | None = None) -> SeenMark:
    """Return a mark of partition *at* of topic t; without *at*, of all topics or of *topic*."""
    return SeenMark(topic=topic or ("t" if at is not None else None), partition=at, resolved=Timestamp(resolved))


def feed(validator: Validator, *events: SeenRow | SeenMark) -> list[str]:
    """Return the failures of *validator* after *events*."""
    for event in events:
        if isinstance(event, SeenMark):
            validator.note_resolved(event)
        else:
            validator.note_row(event)
    return validator.failures()
