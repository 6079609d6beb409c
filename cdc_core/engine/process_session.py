"""Processes that are killed as one: of a session, in a directory, or all that a process has started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

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
    return _kill_all(lambda: [pid for pid, _, its_session in _living() if its_session == session and pid != but])


def reap(process: subprocess.Popen[bytes]) -> int:
    """Kill the session of *process*, its first one, and close its pipes; return its exit status."""
    kill_session(process.pid)  # before it is reaped: its number cannot be another's yet
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    return process.wait()


def kill_in(directory: Path) -> bool:
    """Kill every process whose working directory is below *directory*; return whether all of them have ended.

    As `kill_session`, for what a process that was killed has left.
    """

    def left() -> Iterator[int]:
        for pid, _, _ in _living():
            with suppress(OSError):  # it has ended since, or is another user's
                if directory in Path(os.readlink(_PROC / f"{pid}/cwd")).parents:
                    yield pid

    return _kill_all(lambda: list(left()))


def kill_descendants() -> bool:
    """Kill every process that this one has started, and theirs; return whether all of them have ended.

    As `kill_session`, for a process that may not be the first of a session.
    """
    found: set[int] = set()  # what is killed may leave orphans, which belong to another parent then

    def descendants() -> Collection[int]:
        parents = {pid: parent for pid, parent, _ in _living()}
        while more := {pid for pid, parent in parents.items() if parent in found | {os.getpid()}} - found:
            found.update(more)
        return found & parents.keys()

    return _kill_all(descendants)


def _kill_all(look: Callable[[], Collection[int]]) -> bool:
    deadline = time.monotonic() + _LIMIT_S
    while members := look():
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _living() -> Iterator[tuple[int, int, int]]:
    """Yield the number, the parent and the session of each process that is alive."""
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since
            state, parent, _, session = path.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(path.parent.name), int(parent), int(session)
