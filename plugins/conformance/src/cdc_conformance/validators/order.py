"""Validates the order of a key's versions, of rows and of resolved marks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_conformance.validators.events import Checked, Key, Marks, SeenMark, SeenRow, place_text
from cdc_core import Endpoint, Timestamp

__all__ = ["OrderValidator", "ResolvedValidator"]

_Place = tuple[str, Key, int | None]


@dataclass
class OrderValidator(Checked):
    """No new version of a key follows a later version of it, or a mark at or above it. Repeats may follow.

    All rows of a key must be in one partition. With *moving_keys* they may be in several, as after partitions were
    added, and the order is validated in each. Without *strict*, a row may equal the mark, as in CockroachDB's own
    validator.

    Memory: a timestamp for every distinct version.
    """

    moving_keys: bool = field(default=False, kw_only=True)
    strict: bool = field(default=True, kw_only=True)
    _partitions: dict[tuple[str, Key], int | None] = field(default_factory=dict)
    _seen: dict[_Place, set[Timestamp]] = field(default_factory=dict)
    _latest: dict[_Place, Timestamp] = field(default_factory=dict)
    _marks: Marks = field(default_factory=Marks)

    def note_row(self, row: SeenRow) -> None:
        first = self._partitions.setdefault((row.topic, row.key), row.partition)
        if first != row.partition and not self.moving_keys:
            self._failures.append(f"{row.name}: received on two partitions: {first} and {row.partition}")
            return
        place = (row.topic, row.key, row.partition)
        seen = self._seen.setdefault(place, set())
        if row.updated in seen:
            return
        seen.add(row.updated)
        latest = self._latest.get(place, Timestamp())
        if row.updated < latest:
            self._failures.append(f"{row.place}: saw new row timestamp {row.updated} after {latest} was seen")
        resolved = self._marks.over(row)
        if row.updated < resolved or (self.strict and row.updated == resolved):
            self._failures.append(f"{row.place}: saw new row timestamp {row.updated} after {resolved} was resolved")
        self._latest[place] = max(latest, row.updated)

    def note_resolved(self, mark: SeenMark) -> None:
        self._marks.note(mark)


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
