"""What must end in time, or this process does, with all that it has started."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import NoReturn

from cdc_core.engine.process_session import kill_descendants


class TimeLimit:
    """Calls *expire*, in a thread of its own, when `met` is not called within *limit_s* after `begin`."""

    def __init__(self, limit_s: float, expire: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._expire = expire
        self._begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._met = threading.Event()
        threading.Thread(target=self._watch, name="time limit", daemon=True).start()

    def begin(self) -> None:
        """Let the time begin; once more does nothing. May be called from a signal handler, as it takes no lock."""
        self._begun.put(None)

    def met(self) -> None:
        """Call nothing anymore."""
        self._met.set()
        self._begun.put(None)

    def _watch(self) -> None:
        self._begun.get()
        if not self._met.wait(self._limit_s):
            self._expire()


def end_process() -> NoReturn:
    """End this process and all that it has started, at once and with status 1, whatever its threads are doing."""
    kill_descendants()
    os._exit(1)
