"""What a consumer of a changefeed holds, whatever it reads the messages from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from cdc_core import Timestamp

__all__ = ["Replay"]


@dataclass(slots=True)
class Replay:
    """The tables as of the last resolved timestamp: the least of what the partitions' last marks say.

    A partition is whatever keeps its messages in order and has resolved marks of its own: one of a topic, or all of a
    directory. `tables` maps topic -> key -> (updated, the row as it was given, None for a deleted one). Memory grows
    with the tables, and with the distinct row versions, which are remembered to tell a repeat from a row out of order.
    """

    tables: dict[str, dict[str, tuple[Timestamp, bytes | None]]] = field(default_factory=dict)
    rows: int = 0
    repeats: int = 0
    """Rows that came again."""
    resolved: int = 0
    last_resolved: Timestamp = Timestamp()
    out_of_order: list[str] = field(default_factory=list)
    _marks: dict[Hashable, Timestamp] = field(default_factory=dict)
    _home: dict[tuple[str, str], Hashable] = field(default_factory=dict)
    _seen: set[tuple[str, str, Timestamp]] = field(default_factory=set)
    _latest: dict[tuple[str, str], Timestamp] = field(default_factory=dict)
    _unresolved: list[tuple[str, str, Timestamp, bytes | None]] = field(default_factory=list)

    def watch(self, partition: Hashable) -> None:
        """Resolve nothing more before *partition* has a resolved mark, be it still empty."""
        self._marks.setdefault(partition, Timestamp())

    def note_row(self, partition: Hashable, topic: str, *, key: str, row: bytes | None, updated: Timestamp) -> None:
        """Take one row, or a deletion when *row* is None, in the order of its partition."""
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
            self.out_of_order.append(f"{place}: new row {updated} after {latest} was seen")
        mark = self._marks.setdefault(partition, Timestamp())
        if updated <= mark:
            self.out_of_order.append(f"{place}: new row {updated} after {mark} was resolved")
        self._latest[topic, key] = max(latest, updated)
        self._unresolved.append((topic, key, updated, row))

    def note_resolved(self, partition: Hashable, timestamp: Timestamp) -> None:
        """Take one resolved mark: what is now resolved in every partition becomes part of the tables."""
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
