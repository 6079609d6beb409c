"""The files, sockets and threads that this process has open."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass

import psutil

__all__ = ["Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """The number of open files and sockets, and the running threads."""

    files: int
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> Resources:
        return cls(psutil.Process().num_fds(), frozenset(threading.enumerate()))

    def more(self) -> str:
        """Return in words what was opened since and is still open; an empty text if nothing is."""
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
