"""The time that a piece of work takes, as little disturbed as can be."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest_s(work: Callable[[], object], *, times: int = 3) -> float:
    """Return the seconds of the fastest of *times* runs, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
