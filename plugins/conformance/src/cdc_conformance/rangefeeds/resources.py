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
        return cls(psutil.Process().num_fds(), frozenset(threading.enumerate()))

    def more(self) -> str:
        """Return what there is more by now, for people; an empty text when there is nothing."""
        found = self._more()
        if found:
            gc.collect()
            found = self._more()
        return found

    def _more(self) -> str:
        now = Resources.now()
        found = [f"thread {thread.name}" for thread in now.threads - self.threads if thread.is_alive()]
        if now.files > self.files:
            found.append(f"{now.files - self.files} files or sockets")
        return ", ".join(found)
