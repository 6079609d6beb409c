"""Traced changes once their step is done: told to whoever asked, through the store."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_core.delivery.harmless import harmless
from cdc_core.delivery.tracing import TracedChange
from cdc_core.engine.trace_teller import TraceTeller
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["TracedChanges"]

_MOST_WAITING = 1000
_LONGEST_WAIT_S = 3600.0
_PATIENCE_S = 0.25
"""How long a step may wait until its traced changes are saved: its process may end right after it."""


class TracedChanges:
    """The traced changes that wait for a resolved mark. *marks* says whether there will be any.

    A trace fails no step: whatever goes wrong here is logged.
    """

    def __init__(self, store: ProgressStore, *, marks: bool) -> None:
        self._teller = TraceTeller(lambda: copy.copy(store))  # its own: the coordinator closes connections of *store*
        self._marks = marks
        self._waiting: list[TracedChange] = []

    def saved(self, changes: Sequence[TracedChange]) -> None:
        """Note that the progress after *changes* is saved."""
        now = time.time()
        for change in changes:
            change |= {"saved": now, "marks": self._marks}
        with harmless():
            self._teller.tell(changes, wait_s=_PATIENCE_S)
        if self._marks:
            self._waiting = [*self._waiting, *changes][-_MOST_WAITING:]

    def resolved(self, mark: Timestamp) -> None:
        """Note that *mark* was emitted, by now."""
        if not self._waiting:
            return
        now = time.time()
        passed = [change for change in self._waiting if Timestamp.parse(change["updated"]) <= mark]
        if passed:
            with harmless():
                self._teller.tell([change | {"resolved": now} for change in passed], wait_s=_PATIENCE_S)
        left = [change for change in self._waiting if change not in passed]
        self._waiting = [change for change in left if now - change["saved"] < _LONGEST_WAIT_S]

    def close(self) -> None:
        self._teller.close()
