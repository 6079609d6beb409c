"""Validate the versions of a key: their order, their contents, and their place among resolved marks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection
from dataclasses import dataclass, field

from cdc_conformance.validators.events import (
    AsOf,
    Checked,
    Key,
    Marks,
    Row,
    SeenMark,
    SeenRow,
    place_text,
    row_text,
    same,
)
from cdc_core import Endpoint, Timestamp

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


@dataclass
class BeforeAfterValidator(Checked):
    """`after` is the source's row at `updated`, `before` the row just before. Without *diff*, `before` is absent.

    *as_of* reads the source. Without it, `before` must equal `after` of the previous version that arrived, and the
    first version of a key is not checked. A missing `before` is accepted while no mark covers the row's place, because
    scanned rows have none. With *backfills*, a row that equals the version before may always lack it: a backfill
    repeats rows. A repeat of one timestamp must equal the first arrival.

    Cost: one or two calls of *as_of* for each row. Memory: every distinct version.
    """

    as_of: AsOf | None = None
    diff: bool = field(default=True, kw_only=True)
    backfills: bool = field(default=False, kw_only=True)
    _seen: dict[tuple[str, Key], dict[Timestamp, SeenRow]] = field(default_factory=dict)
    _times: dict[tuple[str, Key], list[Timestamp]] = field(default_factory=dict)
    _marks: Marks = field(default_factory=Marks)

    def note_row(self, row: SeenRow) -> None:
        first = self._seen.get((row.topic, row.key), {}).get(row.updated)
        if first is not None:
            self._failures += self._repeat(row, first)
            return
        found = self._looked_up(row) if self.as_of is None else self._asked(row, self.as_of)
        self._failures += found
        self._seen.setdefault((row.topic, row.key), {})[row.updated] = row
        insort(self._times.setdefault((row.topic, row.key), []), row.updated)

    def note_resolved(self, mark: SeenMark) -> None:
        self._marks.note(mark)

    def _asked(self, row: SeenRow, as_of: AsOf) -> list[str]:
        found = []
        expected = as_of(row.topic, row.key, row.updated)
        if not same(row.after, expected):
            found.append(f"{_said(row)}: after is {row_text(row.after)}, expected {row_text(expected)}")
        if not self.diff or not self._may_be_scanned(row):
            previous = as_of(row.topic, row.key, row.updated.prev()) if self.diff else None
            if not self._may_be_backfilled(row, previous):
                found += self._before(row, previous)
        return found

    def _looked_up(self, row: SeenRow) -> list[str]:
        times = self._times.get((row.topic, row.key), [])
        place = bisect_left(times, row.updated)
        if not self.diff:
            return self._before(row, None)
        if place == 0:
            return []
        previous = self._seen[row.topic, row.key][times[place - 1]].after
        if self._may_be_backfilled(row, previous) or (self._may_be_scanned(row) and same(row.after, previous)):
            return []
        return self._before(row, previous)

    def _before(self, row: SeenRow, expected: Row | None) -> list[str]:
        if same(row.before, expected):
            return []
        return [f"{_said(row)}: before is {row_text(row.before)}, expected {row_text(expected)}"]

    def _repeat(self, row: SeenRow, first: SeenRow) -> list[str]:
        found = []
        if not same(row.after, first.after):
            found.append(
                f"{_said(row)}: arrived again with after {row_text(row.after)}, expected {row_text(first.after)}"
            )
        scanned = row.after is not None and (row.before is None or first.before is None)
        if not same(row.before, first.before) and not (scanned and not self._marks.over(row)):
            found.append(
                f"{_said(row)}: arrived again with before {row_text(row.before)}, expected {row_text(first.before)}"
            )
        return found

    def _may_be_backfilled(self, row: SeenRow, previous: Row | None) -> bool:
        return self.backfills and row.before is None and row.after is not None and same(row.after, previous)

    def _may_be_scanned(self, row: SeenRow) -> bool:
        return row.before is None and row.after is not None and not self._marks.over(row)


def _said(row: SeenRow) -> str:
    return f"{row.place} updated {row.updated}"
