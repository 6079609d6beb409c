"""The tables of a consumer that applies the messages of a changefeed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from cdc_core import Timestamp


@dataclass(slots=True)
class Replay:
    """The tables at the last resolved timestamp: the least of the last marks of all partitions.

    A partition keeps its messages in order and has its own resolved marks: a partition of a topic, or a directory.
    `tables` maps topic -> key -> (updated, the row as it was given or None for a deleted row). Memory grows with the
    tables and with the number of row versions, which must be remembered to recognize repeats.
    """

    tables: dict[str, dict[str, tuple[Timestamp, bytes | None]]] = field(default_factory=dict)
    rows: int = 0
    repeats: int = 0
    """Rows that were repeated."""
    resolved: int = 0
    last_resolved: Timestamp = Timestamp()
    out_of_order: list[str] = field(default_factory=list)
    _marks: dict[Hashable, Timestamp] = field(default_factory=dict)
    _home: dict[tuple[str, str], Hashable] = field(default_factory=dict)
    _seen: set[tuple[str, str, Timestamp]] = field(default_factory=set)
    _latest: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _unresolved: list[tuple[str, str, Timestamp, bytes | None]] = field(default_factory=list)

    def watch(self, partition: Hashable) -> None:
        """Wait for a resolved mark of *partition*, which may be empty, before anything more is resolved."""
        self._marks.setdefault(partition, Timestamp())

    def note_row(self, partition: Hashable, topic: str, *, key: str, row: bytes | None, updated: Timestamp) -> None:
        """Apply one row, or a delete if *row* is None. Call this in the order of the partition."""
        self.rows += 1
        if (topic, key, updated) in self._seen:
            self.repeats += 1
            return
        self._seen.add((topic, key, updated))
        place = f"{topic} {key}"
        if self._home.setdefault((topic, key), partition) != partition:
            self.out_of_order.append(f"{place}: in two partitions, {self._home[topic, key]} and {partition}")
        latest = self._latest.get((topic, key), Timestamp())
        if updated < latest:
            self.out_of_order.append(f"{place}: new row {updated} after row {latest}")
        mark = self._marks.setdefault(partition, Timestamp())
        if updated <= mark:
            self.out_of_order.append(f"{place}: new row {updated} after resolved mark {mark}")
        self._latest[topic, key] = max(latest, updated)
        self._unresolved.append((topic, key, updated, row))

    def note_resolved(self, partition: Hashable, timestamp: Timestamp) -> None:
        """Apply one resolved mark: rows that are now resolved in every partition become part of the tables."""
        self.resolved += 1
        self._marks[partition] = max(timestamp, self._marks.get(partition, Timestamp()))
        least = min(self._marks.values())
        if least > self.last_resolved:
            self.last_resolved = least
            self._apply()

    def _apply(self) -> None:
        rest = []
        for topic, key, updated, row in self._unresolved:
            if updated > self.last_resolved:
                rest.append((topic, key, updated, row))
                continue
            rows = self.tables.setdefault(topic, {})
            if key not in rows or rows[key][0] <= updated:
                rows[key] = (updated, row)
        self._unresolved = rest
