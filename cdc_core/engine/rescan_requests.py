"""How the planners of a process learn of new rescans: the driver asks the store, once for all of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cdc_core.errors import RetryableError

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["RescanFlag", "RescanRequests"]

_LOOK_S = 1.0


class RescanFlag:
    """A small file in the directory of an attempt: which rescans wait. When it changes, the planner asks the store."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "rescans"

    def show(self, waiting: str) -> None:
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(waiting)
        written.replace(self._path)

    def look(self) -> str:
        """Return what was shown last, at first nothing."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return ""


class _Answers:
    """What one store said last of the rescans of all changefeeds. For the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ask_at = 0.0
        self._waiting: Mapping[str, str] = {}

    def of(self, name: str, store: ProgressStore) -> str:
        """Return what identifies the rescans of changefeed *name* that wait; asks *store* once a second at most.

        While another thread asks, and while the store is out of reach, it is what the store said before.
        """
        if time.monotonic() >= self._ask_at and self._lock.acquire(blocking=False):
            try:
                with suppress(RetryableError):  # whatever cannot go on without the store will say so
                    self._waiting = store.all_waiting_rescans()
                self._ask_at = time.monotonic() + _LOOK_S
            finally:
                self._lock.release()
        return self._waiting.get(name, "")


_answers: WeakValueDictionary[str, _Answers] = WeakValueDictionary()


class RescanRequests:
    """Tells the planner of changefeed *name*, in the attempt with directory *run_dir*, of rescans that wait."""

    def __init__(self, name: str, store: ProgressStore, run_dir: Path) -> None:
        self._name = name
        self._store = store
        self._flag = RescanFlag(run_dir)
        self._shown = ""
        self._answers = _answers.setdefault(store.url, _Answers())

    def look(self) -> None:
        """Pass on what has changed. Called a few times a second. Raises: TerminalError as the store does."""
        waiting = self._answers.of(self._name, self._store)
        if waiting != self._shown:
            self._flag.show(waiting)
            self._shown = waiting
