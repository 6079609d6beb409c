"""Validates resolved marks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_conformance.validators.events import Key, SeenMark, SeenRow, place_text
from cdc_conformance.validators.marks import Marks
from cdc_conformance.validators.validator import Checked
from cdc_core import Endpoint, Timestamp

__all__ = ["ResolvedValidator"]


@dataclass
class ResolvedValidator(Checked):
    """Marks never decrease at an endpoint, reach every endpoint, and are never ahead of a row that is still to arrive.

    With *each*, every mark must arrive at every endpoint. Without it, only the greatest one must, for attempts that
    were killed and topics that got more partitions. A row that arrives for the first time must be above the marks that
    all endpoints have in common: `OrderValidator` validates one partition, this one all of them, also if keys move.

    Memory: a timestamp for every distinct version, and with *each* for every mark of every endpoint.
    """

    endpoints: Collection[Endpoint] = ((None, None),)
    each: bool = field(default=True, kw_only=True)
    _marks: Marks = field(default_factory=Marks)
    _arrived: dict[Endpoint, set[Timestamp]] = field(default_factory=dict)
    _least: Timestamp = Timestamp()
    _seen: set[tuple[str, Key, Timestamp]] = field(default_factory=set)

    def note_row(self, row: SeenRow) -> None:
        version = (row.topic, row.key, row.updated)
        if row.updated <= self._least and version not in self._seen:
            self._failures.append(
                f"{row.place}: new row timestamp {row.updated}, when every endpoint was resolved up to {self._least}"
            )
        self._seen.add(version)

    def note_resolved(self, mark: SeenMark) -> None:
        place = place_text(*mark.endpoint)
        if mark.endpoint not in self.endpoints:
            self._failures.append(f"{place}: resolved {mark.resolved} at an endpoint without marks")
            return
        last = self._marks.at.get(mark.endpoint, Timestamp())
        if mark.resolved < last:
            self._failures.append(f"{place}: resolved went back to {mark.resolved} after {last}")
        self._marks.note(mark)
        self._least = self._marks.least(self.endpoints)
        if self.each:
            self._arrived.setdefault(mark.endpoint, set()).add(mark.resolved)

    def failures(self) -> list[str]:
        found = [*self._failures]
        greatest = max(self._marks.at.values(), default=Timestamp())
        everywhere = sorted({mark for marks in self._arrived.values() for mark in marks})
        for endpoint in self.endpoints:
            place = place_text(*endpoint)
            last = self._marks.at.get(endpoint)
            if last is None:
                found.append(f"{place}: no resolved mark arrived")
            elif self.each:
                lacking = [mark for mark in everywhere if mark not in self._arrived[endpoint]]
                found += [f"{place}: resolved {mark} never arrived, though it did elsewhere" for mark in lacking]
            elif last < greatest:
                found.append(f"{place}: resolved only up to {last}, another endpoint up to {greatest}")
        return found
