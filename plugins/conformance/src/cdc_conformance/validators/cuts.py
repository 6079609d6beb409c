"""States that a consumer may make, and what must hold for each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc_conformance.validators.events import Key, Row, SeenMark, SeenRow
from cdc_conformance.validators.oracle import State
from cdc_conformance.validators.replay import Moment, Replay
from cdc_core import Endpoint

__all__ = ["CutValidator"]


class CutValidator:
    """The state at every resolved mark is one that the database had: *invariant* holds for it.

    *invariant* takes the state and returns what is wrong with it, None when nothing is. It must hold after every
    transaction, and be broken by part of one. Rows are held back until the least of the marks of all *endpoints*, which
    must be all there are, covers them: the only cut that a consumer of several partitions may make. With
    *every_timestamp* the state after each `updated` must hold too, once it is resolved; but not below the first cut,
    where the rows of an initial scan are from different times. `cuts` counts what was looked at.

    Memory: see `Replay`.
    """

    def __init__(
        self,
        invariant: Callable[[State], str | None],
        *,
        endpoints: Collection[Endpoint] = ((None, None),),
        every_timestamp: bool = False,
    ) -> None:
        self.cuts = 0
        self._invariant = invariant
        self._replay = Replay(frozenset(endpoints))
        self._wanted = {Moment.RESOLVED, Moment.AT} if every_timestamp else {Moment.RESOLVED}
        self._failures: list[str] = []

    @property
    def state(self) -> dict[str, dict[Key, Row]]:
        """The live rows at the last cut."""
        return self._replay.state

    @property
    def waiting(self) -> int:
        """How many rows are above the last cut; a repeat of what it covers is not."""
        return self._replay.waiting

    def note_row(self, row: SeenRow) -> None:
        self._replay.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        for moment, timestamp in self._replay.note_resolved(mark):
            if moment in self._wanted:
                self.cuts += 1
                wrong = self._invariant(self.state)
                if wrong is not None:
                    self._failures.append(f"{moment.value} {timestamp}: {wrong}")

    def failures(self) -> list[str]:
        return self._failures + [f"{place}: not among the endpoints to be cut" for place in self._replay.strangers]
