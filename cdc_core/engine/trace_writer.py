"""Traced changes on their way to the store, where whoever traces them looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_core.delivery.tracing import suppress_and_log
from cdc_core.store.traced_change import TracedChange
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["TraceWriter"]

_MAX_WAITING = 1000
_MAX_WAIT_S = 3600.0


class TraceWriter:
    """Saves what became of traced changes. A trace fails no slice and no step: whatever goes wrong here is logged.

    The coordinator's keeps those that wait for a resolved mark. *marks* says whether there will be any.
    """

    def __init__(self, store: ProgressStore, *, marks: bool = False) -> None:
        self._store = store
        self._marks = marks
        self._waiting: list[TracedChange] = []

    def write(self, changes: Sequence[TracedChange]) -> None:
        """Return when the traces that look for *changes* have them."""
        for number in sorted({number for change in changes for number in change.traces}):
            with suppress_and_log():
                self._store.traces.put(number, [change for change in changes if number in change.traces])

    def saved(self, changes: Sequence[TracedChange]) -> None:
        """Note that the progress after *changes* is saved."""
        now = time.time()
        saved = [replace(change.reached({"saved": now}), marks=self._marks) for change in changes]
        self.write(saved)
        if self._marks:
            self._waiting = [*self._waiting, *saved][-_MAX_WAITING:]

    def resolved(self, mark: Timestamp) -> None:
        """Note that *mark* was emitted, by now."""
        now = time.time()
        self.write([change.reached({"resolved": now}) for change in self._waiting if change.updated <= mark])
        self._waiting = [
            change for change in self._waiting if change.updated > mark and now - change.moments["saved"] < _MAX_WAIT_S
        ]
