"""A monotonic clock that tests set."""

from __future__ import annotations


class Clock:
    """Returns `now`, in seconds, when called."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
