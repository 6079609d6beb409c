"""How the runs of a process learn of new rescans, traces and pauses: it asks the store, once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.errors import RetryableError

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

_POLL_S = 1.0


class Answers:
    """What one store said last of the requests to all changefeeds, by name. For the threads of a process."""

    def __init__(self) -> None:
        self.rescans: Mapping[str, str] = {}
        self.traces: Mapping[str, str] = {}
        self.pauses: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._due_at = 0.0

    @classmethod
    def of(cls, store: ProgressStore) -> Answers:
        """Return those of *store*."""
        return _answers.setdefault(store.url, cls())

    def poll(self, store: ProgressStore) -> None:
        """Ask *store* once a second at most.

        While another thread asks, and while the store is out of reach, the answers are those before.
        """
        if time.monotonic() >= self._due_at and self._lock.acquire(blocking=False):
            try:
                with suppress(RetryableError):  # what needs the store raises by itself
                    self.rescans = store.rescans.all_waiting()
                    self.traces = store.traces.active()
                    self.pauses = store.jobs.paused_runs()
                self._due_at = time.monotonic() + _POLL_S
            finally:
                self._lock.release()


_answers: WeakValueDictionary[str, Answers] = WeakValueDictionary()


class ControlRequests:
    """Passes on to the planner of changefeed *name*, through *channel*, the rescans that wait and the active traces."""

    def __init__(self, name: str, store: ProgressStore, channel: AttemptChannel) -> None:
        self._name = name
        self._store = store
        self._channel = channel
        self._answers = Answers.of(store)
        self._rescans = self._traces = ""

    def poll(self) -> None:
        """Pass on what has changed. Called a few times a second. Raises: TerminalError as the store does."""
        self._answers.poll(self._store)
        rescans, traces = (asked.get(self._name, "") for asked in (self._answers.rescans, self._answers.traces))
        if rescans != self._rescans:
            self._channel.publish_rescans(rescans)
            self._rescans = rescans
        if traces != self._traces:
            self._channel.publish_traces(traces)
            self._traces = traces
