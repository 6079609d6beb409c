"""Fencing across hosts: an attempt whose epoch is no longer the newest emits nothing more.

The lock files of `fencing` protect one host. Attempts on several hosts share only the progress store, so tasks ask it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, Sink, SliceInfo
from cdc_core.telemetry.stages import continued_while

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["CHECK_VALID_S", "EpochCheck", "FencedSink"]

CHECK_VALID_S = 0.2
"""How long after the begin of a newer attempt a task may begin its last call."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while a process is stopped, and with BOOTTIME also while its host sleeps."""


class EpochCheck:
    """Whether attempt *epoch* of changefeed *name* may emit. It lives in one process of the attempt.

    It reads *store* at most every 200 ms, so a newer attempt is noticed within this time of its begin.
    """

    def __init__(self, store: ProgressStore, *, name: str, epoch: int) -> None:
        self._store = store
        self._name = name
        self._epoch = epoch
        self._valid_until = float("-inf")

    def require_newest(self) -> None:
        """Return when the attempt may emit. Raises: FencedError; RetryableError when the store cannot be read."""
        now = time.clock_gettime(_CLOCK)
        if now >= self._valid_until:
            self._store.require_newest(self._name, self._epoch)
            self._valid_until = now + CHECK_VALID_S  # not later: the process may have been stopped since

    def close(self) -> None:
        self._store.close()


class FencedSink(Sink):
    """Passes on calls to *sink* as long as *require_newest* raises nothing. `repeating` inside of a call asks it too.

    What it cannot prevent: a process that is stopped inside a call of *sink*, and continues after a newer attempt has
    begun, completes that call.
    """

    def __init__(self, sink: Sink, require_newest: Callable[[], None]) -> None:
        super().__init__(sink.context)
        self._sink = sink
        self._require_newest = require_newest

    def begin(self, slice_: SliceInfo) -> None:
        with self._fenced():
            self._sink.begin(slice_)

    def admit(self, topic: str) -> str | None:
        with self._fenced():
            return self._sink.admit(topic)

    def emit(self, rows: RowBatch) -> None:
        with self._fenced():
            self._sink.emit(rows)

    def flush(self) -> Flushed:
        with self._fenced():
            return self._sink.flush()

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        self._require_newest()
        with continued_while(self._require_newest):
            yield
