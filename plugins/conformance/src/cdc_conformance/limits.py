"""Limits the time of a promise: a plugin that hangs fails."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TookTooLong(BaseException):
    """Raised in the main thread, at the place where it hangs."""


@contextmanager
def time_limit(limit_s: float, *, what: str) -> Iterator[None]:
    """Raise `TookTooLong` in the block if it takes longer than *limit_s*. *what* is the subject of the message.

    This needs a system with alarm signals and the main thread, and cannot interrupt code outside of Python. Elsewhere
    there is no limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"{what} did not end within {limit_s:g} s; the last line below shows where it was waiting")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
