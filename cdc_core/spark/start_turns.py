"""Streaming queries of one process start a few at a time: Spark gives the processes of each ten seconds to answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Condition

from cdc_core.engine.run_control import Stopped

__all__ = ["StartTurns", "Turn"]

_LIMIT_S = 8.0
"""How long a query that does not get on, for example because its source is away, holds up others."""
_POLL_INTERVAL_S = 0.1


class Turn:
    """The right to start a query. It ends with `end`, which may be called twice and from any thread, or by itself."""

    def __init__(self, turns: StartTurns) -> None:
        self._turns = turns
        self.until = time.monotonic() + _LIMIT_S

    def end(self) -> None:
        self._turns.end(self)


class StartTurns:
    """As many turns at a time as the machine has cores, but no fewer than two. Safe for several threads.

    Starting a query takes some seconds of processor time, in processes of its own. When a node takes over many jobs at
    once, none of them would be ready in time if all of them started together.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count or max(2, os.cpu_count() or 1)
        self._taken: set[Turn] = set()
        self._changed = Condition()

    def take(self, *, stopped: Callable[[], bool]) -> Turn:
        """Return a turn as soon as one is free. Raises: Stopped when *stopped* becomes true before."""
        with self._changed:
            while not stopped():
                now = time.monotonic()
                self._taken = {turn for turn in self._taken if turn.until > now}
                if len(self._taken) < self._count:
                    turn = Turn(self)
                    self._taken.add(turn)
                    return turn
                self._changed.wait(_POLL_INTERVAL_S)
        raise Stopped

    def end(self, turn: Turn) -> None:
        with self._changed:
            self._taken.discard(turn)
            self._changed.notify()
