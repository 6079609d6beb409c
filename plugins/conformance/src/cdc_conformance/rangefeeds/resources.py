"""What this process has open."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass

import psutil

__all__ = ["Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """How many files and sockets are open, and which threads run."""

    files: int
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> Resources:
        gc.collect()
        return cls(psutil.Process().num_fds(), frozenset(threading.enumerate()))

    def more_than(self, earlier: Resources) -> str:
        """Return what there is more than *earlier*, for people; an empty text when there is nothing."""
        found = [f"thread {thread.name}" for thread in self.threads - earlier.threads if thread.is_alive()]
        if self.files > earlier.files:
            found.append(f"{self.files - earlier.files} files or sockets")
        return ", ".join(found)
