"""Whether a run is alive, by the status that it saved last."""

from __future__ import annotations

from datetime import datetime, timedelta

from cdc_core.store.values import SavedStatus

__all__ = ["ENDINGS", "is_alive"]

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
