"""The session of the process that ran in a node's directory before this one, which need not be waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["LastSessionFile"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LastSessionFile:
    """Keeps the node's session beside *lock*, a file that this process has locked.

    That lock says that whoever held it before has ended, but only on this host since it was started, and only of this
    very file. Another host or container may have a directory of the same name, a copy of it, or the directory itself
    through a network. Where the system does not tell, nothing is known.
    """

    def __init__(self, lock: Path) -> None:
        self._path = lock.with_suffix(".session")
        found = os.stat(lock)
        self._lock = {"boot": _boot(), "device": found.st_dev, "file": found.st_ino}

    def read(self) -> str | None:
        """Return the last session of a process that has certainly ended, or of this one; None when none is known."""
        try:
            kept: Any = json.loads(self._path.read_text())
            session, lock = kept["session"], kept["lock"]
        except (OSError, ValueError, LookupError, TypeError):  # there is none, or not all of it
            return None
        return str(session) if lock == self._lock and lock["boot"] else None

    def write(self, session: str) -> None:
        """Keep *session*, that of this process."""
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps({"session": session, "lock": self._lock}))
        unfinished.rename(self._path)


def _boot() -> str:
    """Return what identifies the time since this system was started; empty where that is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
