"""The status of a run in the progress store, where other processes can see it."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_core.errors import RetryableError
from cdc_core.store.moments import MINUTE_S
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry.status import Status

__all__ = ["HEARTBEAT_S", "StatusRecord"]

HEARTBEAT_S = 10.0
"""A status that does not change is written this often: whoever reads an older one knows that its process is gone."""
_MIN_S = 1.0


class StatusRecord:
    """Keeps the status of changefeed *name* in *store*: one small row, written at most once a second.

    The first one of each minute keeps a moment as well.
    """

    def __init__(self, name: str, store: ProgressStore) -> None:
        self._name = name
        self._store = store
        self._kept: tuple[int, dict[str, Any]] | None = None
        self._at = float("-inf")
        self._minute = 0.0

    def keep(self, status: Status, epoch: int, *, now: bool = False) -> None:
        """Write *status* of attempt *epoch* if it is due, or *now*. Raises: FencedError when a newer one began.

        A store out of reach is no reason to fail: whatever needs it will say so.
        """
        moment = time.monotonic()
        if moment - self._at < _MIN_S and not now:
            return
        values = _values(status)
        if (epoch, values) == self._kept and moment - self._at < HEARTBEAT_S and not now:
            return
        self._at = moment
        minute = time.time() // MINUTE_S
        with suppress(RetryableError):
            self._store.statuses.save(self._name, epoch, values, moment=minute != self._minute)
            self._kept, self._minute = (epoch, values), minute


def _values(status: Status) -> dict[str, Any]:
    """Return *status* without what passes by itself (waiting times, the lag), and without what progress says."""
    at = None
    if status.next_attempt_s is not None:
        at = (datetime.now(UTC) + timedelta(seconds=status.next_attempt_s)).isoformat(timespec="seconds")
    scan = status.scan
    return {
        "phase": status.phase,
        "rows_per_s": float(f"{status.rows_per_s:.2g}"),
        "waiting_on": status.waiting_on,
        "waiting_for": status.waiting_for,
        "error": status.error,
        "notice": status.notice,
        "scan": None if scan is None else {"done": scan.done, "total": scan.total, "unit": scan.unit},
        "next_attempt_at": at,
        "retrying": None if status.retrying is None else status.retrying.to_json(),
        "retries": dict(status.retries),
        "source_silent_since": status.source_silent_since,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
