"""Pure validators of what a consumer reads: feed events in the order of arrival, then ask for failures.

The invariants are those of CockroachDB's cdctest (order, fingerprint), made stricter: a row at or below a resolved mark
is a failure unless it is a repeat, and every committed version must have arrived, not only the last.

Where rows and marks come in partitions (Kafka), *topic* and *partition* say which: a mark is about its partition alone.
Files are one partition, of all topics, without a number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc_core import Timestamp

__all__ = ["CutValidator", "OrderValidator", "Validator", "VersionValidator"]

Row = Mapping[str, Any]
Place = tuple[str, int] | None
"""Topic and partition, None for files."""


class Validator(Protocol):
    """Takes events; `failures` says in words what was wrong, nothing when all was well."""

    def note_row(
        self, topic: str, key: str, after: Row | None, updated: Timestamp, *, partition: int | None = None
    ) -> None: ...

    def note_resolved(self, resolved: Timestamp, *, topic: str | None = None, partition: int | None = None) -> None: ...

    def failures(self) -> list[str]: ...


@dataclass
class OrderValidator:
    """No new version of a key arrives after a later one of it, or at or below a mark of its partition. Repeats may.

    A key has one partition; with *moving_keys* it may have several, as when partitions are added, and then the order
    is looked at in each of them.
    """

    moving_keys: bool = field(default=False, kw_only=True)
    _partitions: dict[tuple[str, str], int | None] = field(default_factory=dict)
    _seen: dict[tuple[str, str, int | None], set[Timestamp]] = field(default_factory=dict)
    _latest: dict[tuple[str, str, int | None], Timestamp] = field(default_factory=dict)
    _resolved: dict[Place, Timestamp] = field(default_factory=dict)
    _failures: list[str] = field(default_factory=list)

    def note_row(
        self, topic: str, key: str, after: Row | None, updated: Timestamp, *, partition: int | None = None
    ) -> None:
        first = self._partitions.setdefault((topic, key), partition)
        if first != partition and not self.moving_keys:
            self._failures.append(f"topic {topic} key {key}: received on two partitions: {first} and {partition}")
            return
        seen = self._seen.setdefault((topic, key, partition), set())
        if updated in seen:
            return
        seen.add(updated)
        where = f"topic {topic} key {key}" if partition is None else f"topic {topic} partition {partition} key {key}"
        latest = self._latest.get((topic, key, partition), Timestamp())
        if updated < latest:
            self._failures.append(f"{where}: saw new row timestamp {updated} after {latest} was seen")
        resolved = self._resolved.get(_place(topic, partition), Timestamp())
        if updated <= resolved:
            self._failures.append(f"{where}: saw new row timestamp {updated} after {resolved} was resolved")
        self._latest[topic, key, partition] = max(latest, updated)

    def note_resolved(self, resolved: Timestamp, *, topic: str | None = None, partition: int | None = None) -> None:
        place = _place(topic, partition)
        self._resolved[place] = max(self._resolved.get(place, Timestamp()), resolved)

    def failures(self) -> list[str]:
        return self._failures


@dataclass
class VersionValidator:
    """Every committed version of a row arrived: a column counts them, and no number may be missing between two.

    *column* is raised by one in each transaction that writes the row. The first version to arrive is whatever the
    initial scan found.
    """

    topic: str
    column: str
    _versions: dict[str, set[int]] = field(default_factory=dict)

    def note_row(
        self, topic: str, key: str, after: Row | None, updated: Timestamp, *, partition: int | None = None
    ) -> None:
        if topic == self.topic and after is not None:
            self._versions.setdefault(key, set()).add(after[self.column])

    def note_resolved(self, resolved: Timestamp, *, topic: str | None = None, partition: int | None = None) -> None:
        pass

    def failures(self) -> list[str]:
        found = []
        for key, versions in self._versions.items():
            lost = sorted(set(range(min(versions), max(versions) + 1)) - versions)
            if lost:
                found.append(f"topic {self.topic} key {key}: versions {lost} never arrived")
        return found


@dataclass
class CutValidator:
    """The state at every resolved mark is one that the database had: *invariant* holds for it.

    *invariant* takes {topic: {key: row}} of live rows and returns what is wrong with them, None when nothing is. It
    must hold after every transaction, and be broken by part of one. With *partitions*, which must be all there are,
    rows are held back until the least of the marks of all partitions covers them: the only cut that a consumer of
    several partitions may make. With *every_timestamp* the state after each `updated` must hold too, once it is
    resolved; but not below the first cut, where the rows of an initial scan are from different times. `cuts` counts
    what was looked at, `waiting` the rows that no cut covers yet.
    """

    invariant: Callable[[Mapping[str, Mapping[str, Row]]], str | None]
    partitions: Collection[tuple[str, int]] | None = field(default=None, kw_only=True)
    every_timestamp: bool = field(default=False, kw_only=True)
    state: dict[str, dict[str, Row]] = field(default_factory=dict)
    cuts: int = 0
    _marks: dict[Place, Timestamp] = field(default_factory=dict)
    _cut: Timestamp = Timestamp()
    _applied: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _waiting: list[tuple[Timestamp, int, str, str, Row | None]] = field(default_factory=list)
    _arrivals: int = 0
    _failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        places: Collection[Place] = [None] if self.partitions is None else list(self.partitions)
        self._marks = dict.fromkeys(places, Timestamp())

    @property
    def waiting(self) -> int:
        """How many rows are above the last cut; a repeat of what it covers is not."""
        return sum(1 for row in self._waiting if row[0] > self._cut)

    def note_row(
        self, topic: str, key: str, after: Row | None, updated: Timestamp, *, partition: int | None = None
    ) -> None:
        if self._knows(_place(topic, partition)):
            self._arrivals += 1
            heapq.heappush(self._waiting, (updated, self._arrivals, topic, key, after))

    def note_resolved(self, resolved: Timestamp, *, topic: str | None = None, partition: int | None = None) -> None:
        place = _place(topic, partition)
        if not self._knows(place):
            return
        self._marks[place] = max(self._marks[place], resolved)
        cut = min(self._marks.values())
        if cut > self._cut:
            self._cut = cut
            self._advance()

    def failures(self) -> list[str]:
        return self._failures

    def _advance(self) -> None:
        """Apply what the cut covers, in the order of time, and look at the result."""
        while self._waiting and self._waiting[0][0] <= self._cut:
            updated, _, topic, key, after = heapq.heappop(self._waiting)
            self._apply(topic, key, after, updated)
            if self.every_timestamp and self.cuts and (not self._waiting or self._waiting[0][0] > updated):
                self._look(f"at {updated}")
        self._look(f"at resolved {self._cut}")

    def _apply(self, topic: str, key: str, after: Row | None, updated: Timestamp) -> None:
        if updated < self._applied.get((topic, key), Timestamp()):
            return
        self._applied[topic, key] = updated
        rows = self.state.setdefault(topic, {})
        if after is None:
            rows.pop(key, None)
        else:
            rows[key] = after

    def _look(self, when: str) -> None:
        self.cuts += 1
        wrong = self.invariant(self.state)
        if wrong is not None:
            self._failures.append(f"{when}: {wrong}")

    def _knows(self, place: Place) -> bool:
        if place in self._marks:
            return True
        named = "no partition" if place is None else f"topic {place[0]} partition {place[1]}"
        self._failures.append(f"{named}: not among the partitions to be cut")
        return False


def _place(topic: str | None, partition: int | None) -> Place:
    if partition is None:
        return None
    assert topic is not None, "a partition belongs to a topic"
    return topic, partition
