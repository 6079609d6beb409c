"""Validates the order of a key's versions, and of rows and resolved marks."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_conformance.validators.events import Key, SeenMark, SeenRow
from cdc_conformance.validators.marks import Marks
from cdc_conformance.validators.validator import Checked
from cdc_core import Timestamp

__all__ = ["OrderValidator"]

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
