"""Rebuilds the tables from what arrives, as a consumer must that wants consistent states."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from cdc_conformance.validators.events import Key, Marks, Row, SeenMark, SeenRow, place_text, speaks_for
from cdc_core import Endpoint, Timestamp

__all__ = ["Moment", "Replay"]


class Moment(Enum):
    """When a state may be examined."""

    BEFORE = "before"
    """Just before the rows of a timestamp are applied."""
    AT = "at"
    """All rows of a timestamp are applied."""
    RESOLVED = "at resolved"
    """All rows up to a cut are applied."""


@dataclass
class Replay:
    """Holds rows back until the marks of all *endpoints* cover them, and then applies them in timestamp order.

    `note_resolved` yields the moments at which `state` may be examined; it must be exhausted. Up to the first cut the
    only moment is the cut itself, because rows of an initial scan have different ages. With *known*, `state` is the
    source's state at the start of a changefeed without initial scan, and there are moments from the start on. A late
    row, below a cut, is applied with the next cut, without a moment of its own. Events at other endpoints are ignored,
    and `strangers` names those endpoints. The first of several repeats counts.

    Memory: the tables, a timestamp for every key, and the rows above the last cut.
    """

    endpoints: Collection[Endpoint]
    known: bool = False
    state: dict[str, dict[Key, Row]] = field(default_factory=dict)
    cut: Timestamp = Timestamp()
    changed: set[tuple[str, Key]] = field(default_factory=set)
    """Topic and key of every row that was applied. The caller may clear it."""
    strangers: list[str] = field(default_factory=list)
    _marks: Marks = field(default_factory=Marks)
    _applied: dict[tuple[str, Key], Timestamp] = field(default_factory=dict)
    _waiting: list[tuple[Timestamp, int, SeenRow]] = field(default_factory=list)
    _arrivals: int = 0

    @property
    def waiting(self) -> int:
        """The number of rows above the last cut, without repeats of rows that it covers."""
        return sum(1 for updated, _, _ in self._waiting if updated > self.cut)

    def note_row(self, row: SeenRow) -> None:
        if any(endpoint in self.endpoints for endpoint in speaks_for(row.topic, row.partition)):
            self._arrivals += 1
            heapq.heappush(self._waiting, (row.updated, self._arrivals, row))
        else:
            self.strangers.append(place_text(row.topic, row.partition))

    def note_resolved(self, mark: SeenMark) -> Iterator[tuple[Moment, Timestamp]]:
        if mark.endpoint not in self.endpoints:
            self.strangers.append(place_text(*mark.endpoint))
            return
        self._marks.note(mark)
        until = self._marks.least(self.endpoints)
        if until <= self.cut:
            return
        last, self.cut = self.cut, until
        looking = self.known or bool(last)
        while self._waiting and self._waiting[0][0] <= until:
            now = self._waiting[0][0]
            if looking and now > last:
                yield Moment.BEFORE, now
            while self._waiting and self._waiting[0][0] == now:
                self._apply(heapq.heappop(self._waiting)[2])
            if looking and now > last:
                yield Moment.AT, now
        yield Moment.RESOLVED, until

    def _apply(self, row: SeenRow) -> None:
        if row.updated <= self._applied.get((row.topic, row.key), Timestamp()):
            return
        self._applied[row.topic, row.key] = row.updated
        self.changed.add((row.topic, row.key))
        rows = self.state.setdefault(row.topic, {})
        if row.after is None:
            rows.pop(row.key, None)
        else:
            rows[row.key] = row.after
