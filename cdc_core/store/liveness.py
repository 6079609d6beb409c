"""Whether a run is alive, by the status that it saved last, and how far it is behind: one answer for all who ask."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cdc_core.store.values import ChangefeedRecord, SavedStatus
from cdc_core.telemetry.status import Retrying

_SILENCE = timedelta(seconds=30)
"""A run saves its status every ten seconds at least. One that did not for this long is dead or cut off."""
ENDINGS = {
    "stopped": "stopped",
    "abandoned": "stopped",
    "given up": "stopped",
    "failed": "failed",
    "complete": "complete",
}
"""The state of a changefeed by the last phase of its run."""


def is_alive(status: SavedStatus | None, *, now: datetime) -> bool:
    """Return whether a run has saved a status within the last 30 seconds, and has not ended since."""
    return status is not None and status.values.get("phase") not in ENDINGS and now - status.written_at <= _SILENCE


def retried_by(status: SavedStatus | None, *, now: datetime) -> Retrying | None:
    """Return what the run that saved *status* retries, if it has not ended."""
    values = {} if status is None or status.values.get("phase") in ENDINGS else status.values
    found = values.get("retrying")
    if found is None:
        return None
    retrying = Retrying.from_json({**found, "next_attempt_at": values.get("next_attempt_at")})
    at = retrying.next_attempt_at
    return retrying if at is None or at > now else replace(retrying, next_attempt_at=None)


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
