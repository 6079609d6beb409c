"""Validate that every committed version arrived, and no other, and count what arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cdc_conformance.validators.events import (
    Checked,
    Commit,
    Key,
    Row,
    SeenMark,
    SeenRow,
    key_text,
    row_text,
    same,
    speaks_for,
)
from cdc_core import Timestamp

_Id = tuple[str, Key]


@dataclass
class VersionValidator(Checked):
    """Every committed version of a row arrived: no number is missing between two versions.

    Each transaction that writes the row increments *column*. The first version that arrives may have any number. If
    the commits are known, use `CompletenessValidator`, which finds more.

    Memory: a number for every distinct version.
    """

    topic: str
    column: str
    _versions: dict[Key, set[int]] = field(default_factory=dict)

    def note_row(self, row: SeenRow) -> None:
        if row.topic == self.topic and row.after is not None:
            self._versions.setdefault(row.key, set()).add(row.after[self.column])

    @property
    def newest(self) -> int:
        """The greatest version of any key that arrived; 0 if there is none."""
        return max((version for versions in self._versions.values() for version in versions), default=0)

    def failures(self) -> list[str]:
        found = []
        for key, versions in self._versions.items():
            lost = sorted(set(range(min(versions), max(versions) + 1)) - versions)
            if lost:
                found.append(f"topic {self.topic} key {key_text(key)}: versions {lost} never arrived")
        return found


@dataclass
class CompletenessValidator(Checked):
    """Exactly the committed versions of each key arrived, and their timestamps are in commit order.

    *commits* holds all commits of the source in order. It may grow while events arrive; `failures` reads it, and by
    then everything must have arrived. The first *started* commits were made before the changefeed's start or during
    it: of these, only the last version of each key arrives, by the initial scan, unless a later one was read first.

    *column* identifies a version: every commit that writes the row increments it. Without *column*, the whole content
    identifies it. Equal consecutive versions count as one: the scan and the log may both yield a row, and a delete may
    be repeated.

    Memory: every distinct version.
    """

    commits: Sequence[Commit]
    started: int = field(default=0, kw_only=True)
    column: str | None = field(default=None, kw_only=True)
    _arrived: dict[_Id, dict[Timestamp, Row | None]] = field(default_factory=dict)

    def note_row(self, row: SeenRow) -> None:
        self._arrived.setdefault((row.topic, row.key), {}).setdefault(row.updated, row.after)

    def failures(self) -> list[str]:
        committed: dict[_Id, list[Row | None]] = {}
        optional: dict[_Id, int] = {}
        for number, commit in enumerate(self.commits):
            for topic, key, after in commit:
                versions = committed.setdefault((topic, key), [])
                if not versions or not self._is(versions[-1], after):
                    versions.append(after)
                if number < self.started:
                    optional[topic, key] = len(versions)
        found = []
        for id_ in {**committed, **self._arrived}:
            found += self._compare(id_, committed.get(id_, []), optional.get(id_, 0))
        return found

    def _compare(self, id_: _Id, committed: Sequence[Row | None], optional: int) -> list[str]:
        """Return the failures of one key. Its first *optional* versions existed at the start."""
        name = f"topic {id_[0]} key {key_text(id_[1])}"
        arrived = self._arrived.get(id_, {})
        times = sorted(arrived)
        known, there = set(map(self._shown, committed)), set(map(self._shown, arrived.values()))
        found = [
            f"{name} updated {time}: version {self._shown(arrived[time])} was never committed"
            for time in times
            if not self._among(arrived[time], committed, known)
        ]
        for number, version in enumerate(committed):
            needed = number >= optional or (number == len(committed) - 1 and version is not None)
            if needed and not self._among(version, arrived.values(), there):
                found.append(f"{name}: version {self._shown(version)}, {number + 1} of {len(committed)}, never arrived")
        if found or not arrived:
            return found
        order = self._without_repeats(arrived[time] for time in times)
        if not any(self._equal(order, committed[first:]) for first in range(optional + 1)):
            return [f"{name}: versions {self._all(order)} arrived, expected {self._all(committed)}"]
        last = arrived[times[-1]]
        if not same(last, committed[-1]):
            return [f"{name}: is {row_text(last)} at the end, expected {row_text(committed[-1])}"]
        return []

    def _without_repeats(self, versions: Iterable[Row | None]) -> list[Row | None]:
        found: list[Row | None] = []
        for version in versions:
            if not found or not self._is(found[-1], version):
                found.append(version)
        return found

    def _equal(self, one: Sequence[Row | None], other: Sequence[Row | None]) -> bool:
        return len(one) == len(other) and all(map(self._is, one, other))

    def _among(self, version: Row | None, versions: Iterable[Row | None], shown: set[str]) -> bool:
        """Return whether *version* is one of *versions*. *shown* holds the texts of most of them."""
        return self._shown(version) in shown or any(self._is(version, other) for other in versions)

    def _is(self, one: Row | None, other: Row | None) -> bool:
        if self.column is None or one is None or other is None:
            return same(one, other)
        return bool(one.get(self.column) == other.get(self.column))

    def _shown(self, version: Row | None) -> str:
        if version is None:
            return "'deleted'"
        return row_text(version) if self.column is None else str(version.get(self.column))

    def _all(self, versions: Iterable[Row | None]) -> str:
        return ", ".join(map(self._shown, versions))


@dataclass
class CountValidator:
    """At least *least_rows* rows and *least_marks* marks arrived. A test that saw nothing has proved nothing.

    `rows` and `repeats` count arrivals, `marks` counts resolved marks, `resolved_rows` the rows that a later mark
    covers, and `marks_with_rows` the marks that cover at least one row for the first time.

    Memory: a timestamp for every distinct version, and the rows that no mark covers yet.
    """

    least_rows: int = field(default=0, kw_only=True)
    least_marks: int = field(default=0, kw_only=True)
    rows: int = 0
    repeats: int = 0
    marks: int = 0
    resolved_rows: int = 0
    marks_with_rows: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _open: Counter[tuple[str, int | None, Timestamp]] = field(default_factory=Counter)

    def note_row(self, row: SeenRow) -> None:
        self.rows += 1
        version = (row.topic, row.key, row.updated)
        self.repeats += version in self._seen
        self._seen.add(version)
        self._open[row.topic, row.partition, row.updated] += 1

    def note_resolved(self, mark: SeenMark) -> None:
        self.marks += 1
        covered = [
            place for place in self._open if place[2] <= mark.resolved and mark.endpoint in speaks_for(*place[:2])
        ]
        self.marks_with_rows += bool(covered)
        for place in covered:
            self.resolved_rows += self._open.pop(place)

    def failures(self) -> list[str]:
        wanted = (("rows", self.rows, self.least_rows), ("resolved marks", self.marks, self.least_marks))
        return [f"{found} {what} arrived, expected at least {least}" for what, found, least in wanted if found < least]
