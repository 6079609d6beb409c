"""How a driver learns that progress was saved, without asking the progress store all the time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cdc_core.engine.attempt_channel import AttemptChannel, Saved
from cdc_core.telemetry import metrics
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import Progress, ProgressStore

_LOAD_S = 1.0
"""Progress is loaded this often at most, however often it is saved."""


class AttemptProgress:
    """The progress of changefeed *name* in *store*, for the driver of an attempt: *channel* says when it is saved."""

    def __init__(self, name: str, store: ProgressStore, channel: AttemptChannel) -> None:
        self._name = name
        self._store = store
        self._channel = channel
        self._seen: Saved | None = None
        self._progress: Progress | None = None
        self._loaded_at = float("-inf")

    def poll(self, *, until: Timestamp | None = None) -> Progress:
        """Return the progress, at most a second after it was saved; at once when it has reached *until*.

        Raises: RetryableError.
        """
        told, now = self._channel.saved(), time.monotonic()
        due = now - self._loaded_at >= _LOAD_S or (until is not None and told is not None and told.high_water >= until)
        if self._progress is None or (told != self._seen and due):
            self._progress = self._store.progress.load(self._name)
            self._seen, self._loaded_at = told, now
        assert self._progress is not None, "the attempt has saved its start"
        return self._progress


def delivered(name: str, store: ProgressStore) -> tuple[float, Timestamp]:
    """Return how many rows were ever delivered, and up to where all is resolved. Raises: RetryableError.

    A source may save steps without rows, for example to begin a scan, and more of them in each attempt.
    """
    progress = store.progress.load(name)
    return (
        (0.0, Timestamp()) if progress is None else (progress.tally.value(metrics.ROWS), progress.frontier.high_water)
    )


def saved_steps(name: str, store: ProgressStore) -> float:
    """Return how many steps of the changefeed were ever saved. Raises: RetryableError."""
    progress = store.progress.load(name)
    return 0.0 if progress is None else progress.tally.value(metrics.STEPS)
