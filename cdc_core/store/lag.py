"""How far a changefeed is behind: one answer for everything that shows it."""

from __future__ import annotations

from datetime import datetime

from cdc_core.store.values import ChangefeedRecord

__all__ = ["DONE", "lag_s"]

DONE = frozenset({"complete", "succeeded", "canceled"})
"""States in which nothing more is to be delivered."""


def lag_s(known: ChangefeedRecord, state: str, *, now: datetime) -> float | None:
    """Return how far the high-water mark is behind *now*; before the first mark, how old the changefeed is.

    None in a *state* in which nothing more is to be delivered.
    """
    if state in DONE:
        return None
    created = known.created or now
    since = known.high_water.wall / 1e9 if known.high_water else created.timestamp()
    return round(max(0.0, now.timestamp() - since), 3)
