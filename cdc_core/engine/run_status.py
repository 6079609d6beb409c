"""The status of a run, as it is shown to its watcher and kept in the progress store."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_core.errors import CdcError, RetryableError
from cdc_core.store.liveness import retried_by
from cdc_core.store.moments import MINUTE_S
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry.status import Retrying, Status
from cdc_core.timestamp import Timestamp

_HEARTBEAT_S = 10.0
"""A status that does not change is written this often: whoever reads an older one knows that its process is gone."""
_MIN_S = 1.0


class WatchError(Exception):
    """The callback that watches the status raised its only argument. No retry helps."""


class RunStatus:
    """The status of one run of changefeed *name*. *watch* is called with each one; `now` is the last.

    From the first attempt or wait on, *store* has it: one small row, written at most once a second. The first one of
    each minute keeps a moment as well.
    """

    def __init__(
        self, name: str, store: ProgressStore, *, log_name: str, watch: Callable[[Status], None] | None
    ) -> None:
        self.now = Status(changefeed=name, phase="starting", log_name=log_name)
        self._name = name
        self._store = store
        self._watch = watch
        self._epoch: int | None = None
        self._kept: tuple[int, dict[str, Any]] | None = None
        self._kept_at = float("-inf")
        self._minute = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether an attempt of this run began, or it waits for one."""
        return self._epoch is not None

    def continue_from(self, high_water: Timestamp) -> None:
        """Start from what is saved, without telling anyone: the high-water mark, and the retries so far.

        What a run that died was retrying, this one retries until it saves a step.
        """
        before = self._store.statuses.load(self._name)
        retries: Mapping[str, int] = {} if before is None else before.values.get("retries", {})
        retrying = retried_by(before, now=datetime.now(UTC))
        self.now = replace(self.now, high_water=high_water, retries=retries, retrying=retrying)

    def keep(self, epoch: int) -> None:
        """Keep the status in the store, under *epoch*."""
        self._epoch = epoch

    def set(self, **changes: Any) -> None:
        """Change the status, without telling anyone before the next `say`."""
        self.now = replace(self.now, **changes)

    def say(self, **changes: Any) -> None:
        """Change the status, and tell of it. Raises: WatchError; FencedError when a newer attempt began."""
        self.set(**changes)
        self._keep()
        if self._watch is not None:
            try:
                self._watch(self.now)
            except Exception as error:
                raise WatchError(error) from error

    def count_retry(self, cause: str, error: str) -> None:
        """Count the failure of an attempt. *error* is masked."""
        counts, since = self.now.retries, self.now.source_silent_since
        if cause == "source" and since is None:
            since = time.time()
        retrying = Retrying.after(self.now.retrying, error)
        self.set(retries={**counts, cause: counts.get(cause, 0) + 1}, source_silent_since=since, retrying=retrying)

    def forget_tasks(self) -> None:
        """Show no task anymore."""
        self.set(shares={}, slices={}, waiting_on=None, waiting_on_s=None)

    def keep_now(self) -> None:
        """Have the store show the status as it is, at the end of the run. The end needs no store."""
        with suppress(CdcError):
            self._keep(now=True)

    def _keep(self, *, now: bool = False) -> None:
        """Write the status if it is due, or *now*. Raises: FencedError when a newer attempt began.

        A store out of reach is no reason to fail: whatever needs it will say so.
        """
        moment = time.monotonic()
        if self._epoch is None or (moment - self._kept_at < _MIN_S and not now):
            return
        kept = self._epoch, _values(self.now)
        if kept == self._kept and moment - self._kept_at < _HEARTBEAT_S and not now:
            return
        self._kept_at = moment
        minute = time.time() // MINUTE_S
        with suppress(RetryableError):
            self._store.statuses.save(self._name, *kept, moment=minute != self._minute)
            self._kept, self._minute = kept, minute


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
        "slices": dict(status.slices),
        "retries": dict(status.retries),
        "source_silent_since": status.source_silent_since,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
