"""Rescans that were asked for, on their way into the steps of a running attempt."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_core.rangefeed import Token
from cdc_core.step_planner import Rescan, StepPlanner
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["Rescans"]

_POLL_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Rescans by their numbers in the store, and the token that holds them. Their rows are later than `began`."""

    numbers: list[int]
    token: Token
    began: Timestamp


class Rescans:
    """The rescans of one attempt. Lives in the planner's process.

    They wait in the store until the step that holds them is saved. A crash before that repeats them, and loses none.
    The store is asked at the start, and whenever what *asked* returns has changed: see `AttemptChannel.rescans`.
    """

    def __init__(
        self, name: str, epoch: int, planner: StepPlanner, store: ProgressStore, asked: Callable[[], str]
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._planner = planner
        self._store = store
        self._asked = asked
        self._answered: str | None = None
        self._taken: _Taken | None = None
        self._held_by = 0
        """The step that is to hold what was taken. Until it is planned, it is asked for again and again."""
        self._poll_at = 0.0

    def added_to(self, start: Token, *, step: int, after: Timestamp) -> Token:
        """Return *start*, from which *step* is planned next, with all rescans that wait: *start* itself without any."""
        if self._taken is not None and step > self._held_by:
            self._begin(self._taken)
        if self._taken is None:
            self._taken = self._take(start, after)
        self._held_by = step
        return start if self._taken is None else self._taken.token

    def _take(self, start: Token, after: Timestamp) -> _Taken | None:
        asked, now = self._asked(), time.monotonic()
        if asked == self._answered or now < self._poll_at:
            return None
        self._poll_at = now + _POLL_INTERVAL_S
        waiting = self._store.rescans.waiting(self._name, new_slot=False)
        wanted = [Rescan(table=found.table, where=found.where) for found in waiting]
        token = self._planner.scan_again(start, wanted) if waiting else start
        if token is None:
            return None
        self._answered = asked
        if not waiting:
            return None
        taken = _Taken(numbers=[found.number for found in waiting], token=token, began=after)
        if token != start:
            return taken
        self._begin(taken)  # there are no rows to read
        return None

    def _begin(self, taken: _Taken) -> None:
        self._store.rescans.begin(self._name, self._epoch, taken.numbers, taken.began)
        self._taken = None
