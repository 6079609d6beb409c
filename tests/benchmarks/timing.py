"""The time that a piece of work takes, as little disturbed as can be."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run of a piece of work. `cpu_s` is the CPU time of this process with all its threads."""

    elapsed_s: float
    cpu_s: float


def take_turns(works: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, list[Turn]]:
    """Run each of *works* once in each round, and return its turns. A first round does not count.

    The garbage collector passes over what exists before: it would traverse all of that during the measurement.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in works}
    gc.freeze()
    try:
        for number in range(rounds + 1):
            for name, work in works.items():
                started, used = time.perf_counter(), time.process_time()
                work()
                turn = Turn(elapsed_s=time.perf_counter() - started, cpu_s=time.process_time() - used)
                if number:
                    turns[name].append(turn)
    finally:
        gc.unfreeze()
    return turns


def fastest_s(work: Callable[[], object], *, times: int = 3) -> float:
    """Return the seconds of the fastest of *times* runs, after one that does not count."""
    return min(turn.elapsed_s for turn in take_turns({"": work}, rounds=times)[""])
