"""A session of the operating system: a child process and all that it has started, killed as one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["kill_session"]

_PROC = Path("/proc")
_LIMIT_S = 5.0
_PAUSE_S = 0.005


def kill_session(session: int, *, but: int | None = None) -> bool:
    """Kill every process of *session*, except process *but*; return whether all of them have ended.

    The number is that of its first process, which must not have been reaped: then it cannot mean another session. A
    process group would not do, as Spark puts its Python workers into groups of their own. Processes are listed again
    until there is none, for up to five seconds, because one may start another meanwhile. Where there is no `/proc`
    nothing is found, and Spark ends by itself when its driver has.
    """
    deadline = time.monotonic() + _LIMIT_S
    while members := [pid for pid in _members(session) if pid != but]:
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _members(session: int) -> Iterator[int]:
    """Yield the processes of *session* that are alive."""
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since
            state, _, _, its_session = path.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                yield int(path.parent.name)
