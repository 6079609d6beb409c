"""The signals that ask a command to stop: Ctrl-C, the end of a service, and the end of a terminal."""

from __future__ import annotations

import errno
import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call *stop*, which takes no lock, at each of the signals during the block. Main thread only.

    SIGHUP stays ignored where it is, as under `nohup`. A terminal that closes sends it twice, by the shell and by the
    kernel: all of them are one. What is written to it from then on leads nowhere, instead of failing.
    """
    hung_up: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if number == signal.SIGHUP:
            hung_up.append(number)
        if number != signal.SIGHUP or len(hung_up) == 1:
            stop()
        if hung_up:
            leave_terminal()

    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [number for number in STOP_SIGNALS if not (deaf and number == signal.SIGHUP)]
    saved = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        if hung_up:
            leave_terminal()
        for number, handler in saved.items():
            signal.signal(number, handler)


def leave_terminal() -> None:
    """Have the standard streams lead nowhere that led to a terminal which is closed."""
    for stream in range(3):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                with suppress(OSError), Path(os.devnull).open("r+b", buffering=0) as nowhere:
                    os.dup2(nowhere.fileno(), stream)


def take_back_interrupts() -> None:
    """Have Python handle SIGINT again, for a wait that is asked now and then. Main thread only.

    A library that is imported meanwhile may handle it: with Polars' handler, Ctrl-C ends no wait for a lock, and is
    lost during a call of Polars in another thread (https://github.com/pola-rs/polars/issues/21739).
    """
    signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
