"""Saving traced changes beside the work: who delivers them does not wait for the progress store."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cdc_core.delivery.harmless import harmless
from cdc_core.delivery.tracing import TracedChange, change_id

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["TraceTeller"]

_MOST_WAITING = 1000
"""As many changes as all traces of a changefeed can keep."""
_LONGEST_S = 60.0
"""How long a change may wait for a store that does not take it."""
_LONGEST_COUNT_S = 3600.0
"""How long the store may be silent before the count of what it did not take is forgotten: no trace lasts longer."""
_REST_S = 1.0
"""How long the store is left alone after it has failed."""
_IDLE_S = 2.0
"""How long the thread, and its connection to the store, outlive what there is to save."""
_Change = tuple[int, str]
"""The number of a trace, and what `change_id` returns."""


class TraceTeller:
    """Saves the newest state of each traced change, in a thread that exists while there are some. Safe with threads.

    What the store does not take in time is left out, and how much that was is saved as soon as the store answers again.
    """

    def __init__(self, open_store: Callable[[], ProgressStore]) -> None:
        self._open_store = open_store
        self._changed = threading.Condition()
        self._waiting: dict[_Change, tuple[float, TracedChange]] = {}
        self._missed: Counter[int] = Counter()
        self._thread: threading.Thread | None = None
        self._answers = True
        self._silent_since: float | None = None
        self._closed = False

    def tell(self, changes: Iterable[TracedChange], *, wait_s: float = 0.0) -> None:
        """Have *changes* saved. Return at once, or when they are, in *wait_s* at most if the store answers."""
        with self._changed:
            for change in changes:
                shown = {name: value for name, value in change.items() if name != "traces"}
                for number in change["traces"]:
                    self._put((number, change_id(change)), shown)
            self._changed.notify_all()
            if self._waiting and self._thread is None:
                thread = threading.Thread(target=self._run, name="traces", daemon=True)
                thread.start()  # or there is none, and the next report tries again
                self._thread = thread
            if wait_s and self._answers:
                self._answers = self._changed.wait_for(lambda: not self._waiting, wait_s)

    def close(self) -> None:
        """Have what waits saved once more, and forget what the store does not take then. Returns at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _put(self, which: _Change, change: TracedChange) -> None:
        if which not in self._waiting and len(self._waiting) >= _MOST_WAITING:
            self._missed[which[0]] += 1
        else:
            since, _ = self._waiting.get(which, (time.monotonic(), change))
            self._waiting[which] = since, change

    def _run(self) -> None:
        store = None
        try:
            while (number := self._next()) is not None:
                saved = False
                with harmless():
                    store = store or self._open_store()
                    self._save(store, number)
                    saved = True
                if not saved:
                    self._rest()
        finally:
            if store is not None:
                with harmless():
                    store.close()

    def _next(self) -> int | None:
        """Return the trace to save next; None, and this thread is over, when nothing has waited for a while."""
        with self._changed:
            if not (self._waiting or self._missed):
                self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE_S)
            number = next((number for number, _ in self._waiting), next(iter(self._missed), None))
            if number is None:
                self._thread = None
            return number

    def _save(self, store: ProgressStore, number: int) -> None:
        with self._changed:
            told = {which: kept for which, kept in self._waiting.items() if which[0] == number}
            missed = self._missed[number]
        store.put_traced(number, {identity: change for (_, identity), (_, change) in told.items()}, missed=missed)
        with self._changed:
            self._silent_since = None
            self._missed[number] -= missed
            self._missed += Counter()  # without those that are none
            for which, kept in told.items():
                if self._waiting.get(which) is kept:  # else there is news of it
                    del self._waiting[which]
            if not self._waiting:
                self._answers = True
                self._changed.notify_all()

    def _rest(self) -> None:
        """Leave the store alone for a while, and leave out what has waited for too long, or all after `close`."""
        with self._changed:
            self._answers, now = False, time.monotonic()
            self._silent_since = now if self._silent_since is None else self._silent_since
            if self._closed:
                self._waiting.clear()
            for which, (since, _) in list(self._waiting.items()):
                if now - since > _LONGEST_S:
                    del self._waiting[which]
                    self._missed[which[0]] += 1
            if self._closed or now - self._silent_since > _LONGEST_COUNT_S:
                self._missed.clear()
            self._changed.wait_for(lambda: self._closed, _REST_S)
