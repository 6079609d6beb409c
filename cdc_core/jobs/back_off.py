"""Jobs that a node leaves alone for a while, because it could not keep them running."""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc_core.store.job_values import Ended

__all__ = ["BackOff"]

_FIRST_WAIT_S = 1.0
_MAX_WAIT_S = 60.0


class BackOff:
    """How long this node waits before it adopts a job again: longer after each failure, a minute at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[str, tuple[float, float]] = {}

    def is_over(self, name: str) -> bool:
        """Return whether the node may run job *name*."""
        not_before, _ = self._waits.get(name, (float("-inf"), 0.0))
        return self._clock() >= not_before

    def ended(self, name: str, ended: Ended, reason: str | None) -> None:
        """Note how the run of job *name* has ended here. One that was stopped for a *reason* failed."""
        _, wait_s = self._waits.pop(name, (0.0, _FIRST_WAIT_S))
        if ended == "stopped" and reason is not None:
            self._waits[name] = self._clock() + wait_s, min(2 * wait_s, _MAX_WAIT_S)
