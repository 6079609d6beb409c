"""States that a consumer may make, and what must hold for each of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cdc_conformance.validators.events import Key, Row, SeenMark, SeenRow, place_text
from cdc_conformance.validators.marks import Marks, speaks_for
from cdc_core import Endpoint, Timestamp

__all__ = ["CutValidator", "State"]

State = Mapping[str, Mapping[Key, Row]]
"""The live rows by topic and key."""


@dataclass
class CutValidator:
    """The state at every resolved mark is one that the database had: *invariant* holds for it.

    *invariant* takes the state and returns what is wrong with it, None when nothing is. It must hold after every
    transaction, and be broken by part of one. Rows are held back until the least of the marks of all *endpoints*, which
    must be all there are, covers them: the only cut that a consumer of several partitions may make. With
    *every_timestamp* the state after each `updated` must hold too, once it is resolved; but not below the first cut,
    where the rows of an initial scan are from different times. `cuts` counts what was looked at, `waiting` the rows
    that no cut covers yet.

    Memory: the tables, a timestamp for every key, and the rows above the last cut.
    """

    invariant: Callable[[State], str | None]
    endpoints: Collection[Endpoint] = field(default=((None, None),), kw_only=True)
    every_timestamp: bool = field(default=False, kw_only=True)
    state: dict[str, dict[Key, Row]] = field(default_factory=dict)
    cuts: int = 0
    _marks: Marks = field(default_factory=Marks)
    _cut: Timestamp = Timestamp()
    _applied: dict[tuple[str, Key], Timestamp] = field(default_factory=dict)
    _waiting: list[tuple[Timestamp, int, SeenRow]] = field(default_factory=list)
    _arrivals: int = 0
    _failures: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """How many rows are above the last cut; a repeat of what it covers is not."""
        return sum(1 for updated, _, _ in self._waiting if updated > self._cut)

    def note_row(self, row: SeenRow) -> None:
        if not any(endpoint in self.endpoints for endpoint in speaks_for(row.topic, row.partition)):
            self._refuse(row.topic, row.partition)
            return
        self._arrivals += 1
        heapq.heappush(self._waiting, (row.updated, self._arrivals, row))

    def note_resolved(self, mark: SeenMark) -> None:
        if mark.endpoint not in self.endpoints:
            self._refuse(*mark.endpoint)
            return
        self._marks.note(mark)
        cut = self._marks.least(self.endpoints)
        if cut > self._cut:
            self._cut = cut
            self._advance()

    def failures(self) -> list[str]:
        return self._failures

    def _advance(self) -> None:
        """Apply what the cut covers, in the order of time, and look at the result."""
        while self._waiting and self._waiting[0][0] <= self._cut:
            updated, _, row = heapq.heappop(self._waiting)
            self._apply(row)
            if self.every_timestamp and self.cuts and (not self._waiting or self._waiting[0][0] > updated):
                self._look(f"at {updated}")
        self._look(f"at resolved {self._cut}")

    def _apply(self, row: SeenRow) -> None:
        if row.updated < self._applied.get((row.topic, row.key), Timestamp()):
            return
        self._applied[row.topic, row.key] = row.updated
        rows = self.state.setdefault(row.topic, {})
        if row.after is None:
            rows.pop(row.key, None)
        else:
            rows[row.key] = row.after

    def _look(self, when: str) -> None:
        self.cuts += 1
        wrong = self.invariant(self.state)
        if wrong is not None:
            self._failures.append(f"{when}: {wrong}")

    def _refuse(self, topic: str | None, partition: int | None) -> None:
        self._failures.append(f"{place_text(topic, partition)}: not among the endpoints to be cut")
