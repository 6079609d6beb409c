"""Pure validators of what a consumer reads: feed events in the order of arrival, then ask for failures.

The invariants are those of CockroachDB's cdctest (order, fingerprint), made stricter: a row at or below a resolved mark
is a failure unless it is a repeat, and every committed version must have arrived, not only the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc_core import Timestamp

__all__ = ["CutValidator", "OrderValidator", "Validator", "VersionValidator"]

Row = Mapping[str, Any]


class Validator(Protocol):
    """Takes events; `failures` says in words what was wrong, nothing when all was well."""

    def note_row(self, topic: str, key: str, after: Row | None, updated: Timestamp) -> None: ...

    def note_resolved(self, resolved: Timestamp) -> None: ...

    def failures(self) -> list[str]: ...


@dataclass
class OrderValidator:
    """No new version of a key arrives after a later one of it, or at or below a resolved mark. Repeats may."""

    _seen: dict[tuple[str, str], set[Timestamp]] = field(default_factory=dict)
    _latest: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _resolved: Timestamp = Timestamp()
    _failures: list[str] = field(default_factory=list)

    def note_row(self, topic: str, key: str, after: Row | None, updated: Timestamp) -> None:
        seen = self._seen.setdefault((topic, key), set())
        if updated in seen:
            return
        seen.add(updated)
        latest = self._latest.get((topic, key), Timestamp())
        if updated < latest:
            self._failures.append(f"topic {topic} key {key}: saw new row timestamp {updated} after {latest} was seen")
        if updated <= self._resolved:
            self._failures.append(
                f"topic {topic} key {key}: saw new row timestamp {updated} after {self._resolved} was resolved"
            )
        self._latest[topic, key] = max(latest, updated)

    def note_resolved(self, resolved: Timestamp) -> None:
        self._resolved = max(self._resolved, resolved)

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

    def note_row(self, topic: str, key: str, after: Row | None, updated: Timestamp) -> None:
        if topic == self.topic and after is not None:
            self._versions.setdefault(key, set()).add(after[self.column])

    def note_resolved(self, resolved: Timestamp) -> None:
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
    must hold after every transaction, and be broken by part of one.
    """

    invariant: Callable[[Mapping[str, Mapping[str, Row]]], str | None]
    state: dict[str, dict[str, Row]] = field(default_factory=dict)
    _applied: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _waiting: list[tuple[Timestamp, str, str, Row | None]] = field(default_factory=list)
    _failures: list[str] = field(default_factory=list)

    def note_row(self, topic: str, key: str, after: Row | None, updated: Timestamp) -> None:
        self._waiting.append((updated, topic, key, after))

    def note_resolved(self, resolved: Timestamp) -> None:
        due = [entry for entry in self._waiting if entry[0] <= resolved]
        self._waiting = [entry for entry in self._waiting if entry[0] > resolved]
        for updated, topic, key, after in due:
            if updated < self._applied.get((topic, key), Timestamp()):
                continue
            self._applied[topic, key] = updated
            rows = self.state.setdefault(topic, {})
            if after is None:
                rows.pop(key, None)
            else:
                rows[key] = after
        wrong = self.invariant(self.state)
        if wrong is not None:
            self._failures.append(f"at resolved {resolved}: {wrong}")

    def failures(self) -> list[str]:
        return self._failures
