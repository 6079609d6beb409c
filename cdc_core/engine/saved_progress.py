"""How a driver learns that progress was saved, without asking the progress store all the time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.telemetry import metrics
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import Progress, ProgressStore

__all__ = ["Saved", "SavedFlag", "SavedProgress", "delivered", "saved_steps"]

_LOAD_S = 1.0
"""Progress is loaded this often at most, however often it is saved."""
_SIZE = 128


@dataclass(frozen=True, slots=True)
class Saved:
    """What is known of the progress that was saved with *step*."""

    step: int
    high_water: Timestamp
    latest: Timestamp


class SavedFlag:
    """A small file in the directory of an attempt: its coordinator tells driver and planner here what it has saved."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "saved"

    def show(self, saved: Saved) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, f"{saved.step} {saved.high_water} {saved.latest}".encode().ljust(_SIZE), 0)
        finally:
            os.close(file)

    def look(self) -> Saved | None:
        """Return what was shown last, None before the first step."""
        try:
            step, high_water, latest = self._path.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return Saved(int(step), Timestamp.parse(high_water), Timestamp.parse(latest))


class SavedProgress:
    """The progress of changefeed *name* in *store*, for the driver of the attempt in *run_dir*."""

    def __init__(self, name: str, store: ProgressStore, run_dir: Path) -> None:
        self._name = name
        self._store = store
        self._flag = SavedFlag(run_dir)
        self._seen: Saved | None = None
        self._progress: Progress | None = None
        self._loaded_at = float("-inf")

    def look(self, *, until: Timestamp | None = None) -> Progress:
        """Return the progress, at most a second after it was saved; at once when it has reached *until*.

        Raises: RetryableError.
        """
        told, now = self._flag.look(), time.monotonic()
        due = now - self._loaded_at >= _LOAD_S or (until is not None and told is not None and told.high_water >= until)
        if self._progress is None or (told != self._seen and due):
            self._progress = self._store.load(self._name)
            self._seen, self._loaded_at = told, now
        assert self._progress is not None, "the attempt has saved its start"
        return self._progress


def delivered(name: str, store: ProgressStore) -> tuple[float, Timestamp]:
    """Return how many rows were ever delivered, and up to where all is resolved. Raises: RetryableError.

    A source may save steps without rows, for example to begin a scan, and more of them in each attempt.
    """
    progress = store.load(name)
    return (
        (0.0, Timestamp()) if progress is None else (progress.tally.value(metrics.ROWS), progress.frontier.high_water)
    )


def saved_steps(name: str, store: ProgressStore) -> float:
    """Return how many steps of the changefeed were ever saved. Raises: RetryableError."""
    progress = store.load(name)
    return 0.0 if progress is None else progress.tally.value(metrics.STEPS)
