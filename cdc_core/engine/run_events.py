"""What a run writes to the event log."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cdc_core.errors import CdcError, FencedError
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.telemetry import metrics
from cdc_core.timestamp import Timestamp

_EMITTED_EVERY_S = 3600.0
_EMITTED = {"rows": metrics.ROWS, "messages": metrics.MESSAGES, "bytes": metrics.BYTES}
_KINDS = {"complete": "changefeed_succeeded", "failed": "changefeed_failed"}


class RunEvents:
    """Records what happens to the run of changefeed *name*. Of a *job*, its node records how the run ends, and prunes.

    Nothing is recorded for a step. A store that cannot be used is no reason to fail: whatever needs it will say so.
    """

    def __init__(
        self, name: str, store: ProgressStore, *, job: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._store = store
        self._job = job
        self._clock = clock
        self._started = False
        self._told = self._totals = _totals(store.progress.load(name))
        self._told_at = clock()

    def started(self, epoch: int, high_water: Timestamp) -> None:
        """Record that the first attempt delivers; do nothing for later ones."""
        if not self._started:
            self._started = True
            self._prune()
            mark = str(high_water) if high_water else None
            self._note("changefeed_started", epoch=epoch, high_water=mark, host=socket.gethostname(), pid=os.getpid())

    def retried(self, cause: str, reason: str, wait_s: float) -> None:
        """Record that an attempt failed and another one follows."""
        with suppress(CdcError):
            self._store.events.note_repeated(
                "changefeed_retried", self._name, cause=cause, message=reason, wait_s=round(wait_s, 1)
            )

    def saved(self, progress: Progress | None, *, now: bool = False) -> None:
        """Record what was delivered since the last time, once an hour, or *now*."""
        self._totals = _totals(progress) if progress is not None else self._totals
        since_s = self._clock() - self._told_at
        if since_s < _EMITTED_EVERY_S and not now:
            return
        amounts: dict[str, Any] = {what: total - self._told[what] for what, total in self._totals.items()}
        self._told, self._told_at = self._totals, self._clock()
        if not now:
            self._prune()
        if any(amounts.values()):
            self._note("changefeed_emitted_bytes", **amounts, seconds=round(since_s))

    def ended(self, phase: str, error: BaseException | None, reason: str | None) -> None:
        """Record how the run ended: *reason* is the text of *error*, masked."""
        self.saved(None, now=True)
        if isinstance(error, FencedError):
            self._note("changefeed_fenced", message=reason)
        elif not self._job:
            how = None if phase in _KINDS or phase == "stopped" else phase
            self._note(_KINDS.get(phase, "changefeed_stopped"), message=reason, how=how)

    def _prune(self) -> None:
        if not self._job:  # nodes do it themselves
            with suppress(CdcError):
                self._store.events.prune()

    def _note(self, kind: str, *, message: str | None = None, **details: Any) -> None:
        with suppress(CdcError):
            self._store.events.note(kind, self._name, message=message, **details)


def _totals(progress: Progress | None) -> dict[str, int]:
    tally = (Progress(token={}) if progress is None else progress).tally
    return {what: int(tally.value(metric)) for what, metric in _EMITTED.items()}
