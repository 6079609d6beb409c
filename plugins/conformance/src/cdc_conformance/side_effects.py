"""What a piece of code changes, connects to and starts, and what it leaves open."""

from __future__ import annotations

import gc
import os
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import psutil

T = TypeVar("T")

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_CONNECTIONS = (
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"),
    "sqlite3.connect",
)
_PROCESSES = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "os.exec")
_POLL_S = 0.005


@dataclass(slots=True)
class Effects:
    """Side effects in every thread of this process, as far as Python sees them."""

    changed: list[str] = field(default_factory=list)
    """Paths of files and directories that were created, changed or removed."""
    connected: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    threads: int = 0
    """How many threads were started, or added if that is more: libraries start threads that Python does not see."""

    def __str__(self) -> str:
        parts = [f"changed {path}" for path in self.changed] + self.connected + self.started
        return ", ".join(parts + ([f"started {self.threads} threads"] if self.threads > 0 else [])) or "nothing"


_watching: list[Effects] = []


@contextmanager
def watched() -> Iterator[Effects]:
    """Yield the side effects of the block. They are complete when it ends."""
    _install_hook()
    effects, before, start = Effects(), threads(), threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        effects.threads += 1
        start(thread)

    threading.Thread.start = counted  # type: ignore[assignment, method-assign]
    _watching.append(effects)
    try:
        yield effects
    finally:
        _watching.remove(effects)
        threading.Thread.start = start  # type: ignore[method-assign]
        effects.threads = max(effects.threads, threads() - before)


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


def threads() -> int:
    """Return how many threads this process has, those of libraries included."""
    return int(psutil.Process().num_threads())


def resident_bytes() -> int:
    """Return how much memory this process uses."""
    return int(psutil.Process().memory_info().rss)


def descriptors() -> Counter[str]:
    """Return how many sockets and how many other files this process has open."""
    kinds: Counter[str] = Counter()
    for name in os.listdir("/dev/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
        except OSError:  # of the directory itself
            continue
        kinds["sockets" if stat.S_ISSOCK(mode) else "files"] += 1
    return kinds


def until(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Return whether *condition* became true in time."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(_POLL_S)
    return True


def failure_of(action: Callable[[], object]) -> Exception | None:
    """Return what *action* raised, or None."""
    try:
        action()
    except Exception as error:
        return error
    return None


class Background(Generic[T]):
    """Runs *action* in a thread of its own."""

    def __init__(self, action: Callable[[], T]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(action,), daemon=True)
        self._thread.start()

    def ended(self, *, within_s: float) -> bool:
        """Return whether the action ended in time, with or without an error."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self, action: Callable[[], T]) -> None:
        try:
            action()
        except BaseException as error:  # for the test
            self.error = error


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    for effects in _watching:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and flags & _WRITES and "__pycache__" not in os.fsdecode(path):
                effects.changed.append(os.fsdecode(path))
        elif event in _CHANGES:
            if "__pycache__" not in str(arguments[0]):
                effects.changed.append(os.fsdecode(arguments[0]))
        elif event in _CONNECTIONS:
            effects.connected.append(f"called {event}")
        elif event in _PROCESSES:
            effects.started.append(f"called {event}")


_hooked: list[bool] = []


def _install_hook() -> None:
    """Add the audit hook once: it cannot be removed. Outside of `watched` it does nothing."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_hook)
