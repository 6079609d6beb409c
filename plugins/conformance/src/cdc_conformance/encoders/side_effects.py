"""Records the side effects of code: files written, connections, processes and threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["side_effects"]

_EVENTS = frozenset(
    {
        "os.fork",
        "os.mkdir",
        "os.putenv",
        "os.remove",
        "os.rename",
        "os.system",
        "shutil.rmtree",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.sendto",
        "subprocess.Popen",
        "tempfile.mkdtemp",
        "tempfile.mkstemp",
    }
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_found: list[str] | None = None
_thread = 0
_hooked = False


@contextmanager
def side_effects() -> Iterator[list[str]]:
    """Yield a list of the side effects of this thread. Reading files and importing modules do not count."""
    global _found, _thread, _hooked
    if not _hooked:  # An audit hook cannot be removed.
        sys.addaudithook(_hook)
        _hooked = True
    _thread, _found = threading.get_ident(), []
    start = threading.Thread.start
    threading.Thread.start = _started(start)  # type: ignore[assignment, method-assign]
    try:
        yield _found
    finally:
        _found = None
        threading.Thread.start = start  # type: ignore[method-assign]


def _started(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def noted(thread: threading.Thread) -> None:
        if _found is not None and threading.get_ident() == _thread:
            _found.append(f"thread {thread.name!r}")
        start(thread)

    return noted


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _found is None or threading.get_ident() != _thread:
        return
    if event in _EVENTS:
        _found.append(f"{event}{arguments[:2]!r}")
    elif event == "open" and _writes(*arguments[:3]):
        _found.append(f"open for writing {arguments[0]!r}")


def _writes(path: Any, mode: Any, flags: Any) -> bool:
    if "__pycache__" in str(path):
        return False
    if isinstance(mode, str):
        return bool(set("wax+") & set(mode))
    return bool(flags & _WRITING)
