"""What consumers make of rows whose table gets another key: one copy of the table under each key."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_conformance.validators import Row, SeenMark, SeenRow, Validator
from cdc_conformance.validators.events import Marks, same
from cdc_testing.nemesis_events import FIRST_N

from cdc_core import Endpoint, Timestamp

Key = tuple[Any, ...]


def columns_of(key: Key) -> tuple[str, ...]:
    """Return the columns that *key* has values of."""
    return tuple("id" if value < FIRST_N else "n" for value in key)


def id_of(key: Key) -> int:
    """Return the `id` of the row with this key."""
    found: int = key[columns_of(key).index("id")]
    return found


class Held:
    """Holds rows back until the marks of all *endpoints* cover them."""

    def __init__(self, endpoints: Collection[Endpoint]) -> None:
        self.cut = Timestamp()
        self._endpoints = frozenset(endpoints)
        self._marks = Marks()
        self._waiting: list[tuple[Timestamp, bool, int, SeenRow]] = []
        self._arrivals = 0

    def note_row(self, row: SeenRow) -> None:
        self._arrivals += 1
        heapq.heappush(self._waiting, (row.updated, row.after is not None, self._arrivals, row))

    def covered(self, mark: SeenMark) -> list[SeenRow]:
        """Return the rows that *mark* is the last to cover, in order of their timestamps, deletes first."""
        if mark.endpoint in self._endpoints:
            self._marks.note(mark)
        self.cut = max(self.cut, self._marks.least(self._endpoints))
        found = []
        while self._waiting and self._waiting[0][0] <= self.cut:
            found.append(heapq.heappop(self._waiting)[3])
        return found


class ById:
    """Feeds a validator with rows whose key is their `id`, whatever key the table has, once marks cover them.

    A delete and an insert of one row at one timestamp are an update that changes the key, and arrive as one row.
    """

    def __init__(self, validator: Validator, endpoints: Collection[Endpoint]) -> None:
        self._validator = validator
        self._held = Held(endpoints)
        self._written: set[tuple[str, int, Timestamp]] = set()

    def note_row(self, row: SeenRow) -> None:
        self._held.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        rows = self._held.covered(mark)
        self._written |= {_version(row) for row in rows if row.after is not None}
        before: dict[tuple[str, int, Timestamp], Row | None] = {}
        for row in rows:
            if row.after is None and _version(row) in self._written:
                before[_version(row)] = row.before
                continue
            image = before.get(_version(row)) if row.before is None else row.before
            self._validator.note_row(replace(row, key=(id_of(row.key),), before=image))
        self._validator.note_resolved(mark)

    def failures(self) -> list[str]:
        return self._validator.failures()


@dataclass
class _Copies:
    """What a consumer has of one table."""

    columns: tuple[str, ...] = ()
    """The key of the newest copy, which begins with the first row that has this key."""
    rows: dict[Key, Row] = field(default_factory=dict)
    """The newest copy."""
    by_id: dict[int, Row] = field(default_factory=dict)
    """All rows, whatever key they arrived under."""

    def apply(self, row: SeenRow) -> None:
        if columns_of(row.key) != self.columns:
            self.columns, self.rows = columns_of(row.key), {}
        if row.after is None:
            self.rows.pop(row.key, None)
            self.by_id.pop(id_of(row.key), None)
        else:
            self.rows[row.key] = self.by_id[id_of(row.key)] = row.after


class PresentKeyValidator:
    """At every resolved mark the copy under the table's key has all rows, and that key is one of *keys_at* then.

    *keys_at* returns the keys that a topic's table may have at a time. *lost* returns the ids of rows that consumers
    keep although the table lost them without a delete.
    """

    def __init__(
        self,
        keys_at: Callable[[str, Timestamp], Collection[tuple[str, ...]]],
        lost: Callable[[str], Collection[int]],
        endpoints: Collection[Endpoint],
    ) -> None:
        self._keys_at = keys_at
        self._lost = lost
        self._held = Held(endpoints)
        self._copies: dict[str, _Copies] = {}
        self._failures: list[str] = []

    def note_row(self, row: SeenRow) -> None:
        columns = columns_of(row.key)
        if row.after is not None and row.key != tuple(row.after[name] for name in columns):
            self._failures.append(f"{row.place} at {row.updated}: its columns are {row.after}")
        self._held.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        last = self._held.cut
        for row in self._held.covered(mark):
            if row.updated > last:  # others are repeats, as other validators see to
                self._copies.setdefault(row.topic, _Copies()).apply(row)
        if self._held.cut > last:
            for topic, copies in self._copies.items():
                self._look(topic, copies)

    def failures(self) -> list[str]:
        return self._failures

    def _look(self, topic: str, copies: _Copies) -> None:
        at = f"topic {topic} at resolved {self._held.cut}"
        allowed = self._keys_at(topic, self._held.cut)
        if copies.rows and copies.columns not in allowed:
            self._failures.append(f"{at}: rows have the key {copies.columns}, the table has {sorted(allowed)}")
        found = {id_of(key): row for key, row in copies.rows.items()}
        expected = copies.by_id
        for id_ in sorted(found.keys() | (expected.keys() - set(self._lost(topic)))):
            if not same(found.get(id_), expected.get(id_)):
                self._failures.append(
                    f"{at}: under the key {copies.columns} row {id_} is {found.get(id_)}, expected {expected.get(id_)}"
                )
        if len(found) < len(copies.rows):
            self._failures.append(f"{at}: several rows with one id: {sorted(copies.rows)}")


def _version(row: SeenRow) -> tuple[str, int, Timestamp]:
    return row.topic, id_of(row.key), row.updated


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescanned:
    """A rescan that is complete: its rows are later than `began`. With `below`, only those with a smaller `id`."""

    topic: str
    below: int | None
    began: Timestamp


class RescanValidator:
    """Each row that was there when a rescan began arrives again, or a change of it, before the next resolved mark.

    Validates once everything has arrived.
    """

    def __init__(self, rescans: Sequence[Rescanned], endpoints: Collection[Endpoint]) -> None:
        self._rescans = rescans
        self._held = Held(endpoints)
        self._cuts: list[Timestamp] = []
        self._rows: list[SeenRow] = []

    def note_row(self, row: SeenRow) -> None:
        self._rows.append(row)
        self._held.note_row(row)

    def note_resolved(self, mark: SeenMark) -> None:
        self._held.covered(mark)
        self._cuts.append(self._held.cut)

    def failures(self) -> list[str]:
        rows = sorted(self._rows, key=lambda row: (row.updated, row.after is not None))
        return [failure for rescan in self._rescans for failure in self._missing(rescan, rows)]

    def _missing(self, rescan: Rescanned, rows: Sequence[SeenRow]) -> list[str]:
        there: set[int] = set()
        again: set[int] = set()
        end = min((cut for cut in self._cuts if cut > rescan.began), default=None)
        if end is None:
            return [f"topic {rescan.topic}: no resolved mark after the rescan that began at {rescan.began}"]
        for row in rows:
            if row.topic != rescan.topic:
                continue
            if row.updated > rescan.began:
                again |= {id_of(row.key)} if row.updated <= end else set()
            elif row.after is None:
                there.discard(id_of(row.key))
            else:
                there.add(id_of(row.key))
        return [
            f"topic {rescan.topic}: row {id_} did not arrive again between {rescan.began}, when its rescan began, and"
            f" the mark {end}"
            for id_ in sorted(there - again)
            if rescan.below is None or id_ < rescan.below
        ]
