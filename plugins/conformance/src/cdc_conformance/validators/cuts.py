"""Validates an invariant in every consistent state of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc_conformance.validators.events import Key, Row, SeenMark, SeenRow
from cdc_conformance.validators.oracle import State
from cdc_conformance.validators.replay import Moment, Replay
from cdc_core import Endpoint

__all__ = ["CutValidator"]


class CutValidator:
    """*invariant* holds in the state at every resolved mark.

    *invariant* takes the state and returns what is wrong with it, or None. It should hold after every transaction and
    fail within one. Rows are applied when the marks of all *endpoints* cover them; *endpoints* must be complete. With
    *every_timestamp*, the state after each `updated` is checked too, but not below the first cut, where rows of an
    initial scan have different ages. `cuts` counts the checks.

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
        """The number of rows above the last cut, without repeats of rows that it covers."""
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
        return self._failures + [f"{place}: not among the endpoints" for place in self._replay.strangers]
