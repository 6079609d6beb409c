"""Traced changes once their step is done: told to whoever asked, through the store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cdc_core.delivery.harmless import harmless
from cdc_core.delivery.tracing import TracedChange, change_id
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["TracedChanges", "put_traced"]


_MOST_WAITING = 1000
_LONGEST_WAIT_S = 3600.0


def put_traced(store: ProgressStore, changes: Iterable[TracedChange]) -> None:
    """Save what became of *changes*. A store out of reach is no reason to fail."""
    with harmless():
        by_trace: dict[int, dict[str, TracedChange]] = {}
        for change in changes:
            shown = {name: value for name, value in change.items() if name != "traces"}
            for number in change["traces"]:
                by_trace.setdefault(number, {})[change_id(change)] = shown
        for number, found in by_trace.items():
            store.put_traced(number, found)


class TracedChanges:
    """The traced changes that wait for a resolved mark. *marks* says whether there will be any."""

    def __init__(self, store: ProgressStore, *, marks: bool) -> None:
        self._store = store
        self._marks = marks
        self._waiting: list[TracedChange] = []

    def saved(self, changes: Sequence[TracedChange]) -> None:
        """Note that the progress after *changes* is saved."""
        now = time.time()
        for change in changes:
            change |= {"saved": now, "marks": self._marks}
        put_traced(self._store, changes)
        if self._marks:
            self._waiting = [*self._waiting, *changes][-_MOST_WAITING:]

    def resolved(self, mark: Timestamp) -> None:
        """Note that *mark* was emitted, by now."""
        if not self._waiting:
            return
        now = time.time()
        passed = [change for change in self._waiting if Timestamp.parse(change["updated"]) <= mark]
        if passed:
            put_traced(self._store, [change | {"resolved": now} for change in passed])
        left = [change for change in self._waiting if change not in passed]
        self._waiting = [change for change in left if now - change["saved"] < _LONGEST_WAIT_S]
