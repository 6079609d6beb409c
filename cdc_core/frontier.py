"""The frontier: how far every watched span is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cdc_core.span import Span
from cdc_core.timestamp import Timestamp


class Frontier:
    """Resolved timestamp per span; its minimum is the high-water mark.

    A new frontier watches its spans at timestamp zero, which means "nothing is resolved". Spans only move forward. Part
    of a span may be forwarded alone: the span is split, and adjacent parts with equal timestamps are joined again.
    """

    __slots__ = ("_least", "_tables")

    def __init__(self, spans: Iterable[Span], timestamp: Timestamp = Timestamp()) -> None:
        self._tables: dict[str, list[tuple[Span, Timestamp]]] = {}
        """The entries of each table, in order."""
        self._least: dict[str, Timestamp] = {}
        """The minimum over each table: there may be many tables, and many spans of each."""
        self._add((span, timestamp) for span in spans)

    def __iter__(self) -> Iterator[tuple[Span, Timestamp]]:
        for table in sorted(self._tables):
            yield from self._tables[table]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frontier) and self._tables == other._tables

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Frontier({', '.join(f'{span}@{timestamp}' for span, timestamp in self)})"

    @property
    def high_water(self) -> Timestamp:
        """The minimum over all watched spans; zero while nothing is resolved in some span, or if no span is watched."""
        return min(self._least.values(), default=Timestamp())

    @property
    def latest(self) -> Timestamp:
        """The maximum over all watched spans."""
        return max((timestamp for _, timestamp in self), default=Timestamp())

    def of(self, span: Span) -> Timestamp:
        """The minimum over the watched parts of *span*; zero if no part of it is watched."""
        watched = self._tables.get(span.table, ())
        return min((timestamp for part, timestamp in watched if part.overlap(span)), default=Timestamp())

    def copy(self) -> Frontier:
        """Return an independent frontier with the same timestamps."""
        frontier = Frontier(())
        frontier._tables, frontier._least = dict(self._tables), dict(self._least)
        return frontier

    def watching(self, spans: Iterable[Span]) -> Frontier:
        """Return a frontier of the tables of *spans*, each a whole table.

        Tables that this frontier watches keep their timestamps; the others begin at its high-water mark.
        """
        frontier = Frontier(())
        for span in spans:
            frontier._add(self._tables.get(span.table) or [(span, self.high_water)])
        return frontier

    def forward(self, span: Span, timestamp: Timestamp) -> None:
        """Raise every watched key of *span* to *timestamp*. The cost does not depend on other tables.

        Keys that are already at or past *timestamp* do not change; keys that are not watched are ignored.
        """
        entries: list[tuple[Span, Timestamp]] = []
        for watched, current in self._tables.pop(span.table, ()):
            common = watched.overlap(span)
            if common is None or current >= timestamp:
                entries.append((watched, current))
                continue
            entries.extend((rest, current) for rest in watched.minus(common))
            entries.append((common, timestamp))
        self._add(entries)

    def to_json(self) -> list[list[Any]]:
        """Return the frontier as JSON values, for `from_json`."""
        return [[*span.to_json(), str(timestamp)] for span, timestamp in self]

    @classmethod
    def from_json(cls, value: Iterable[Sequence[Any]]) -> Frontier:
        frontier = cls(())
        frontier._add((Span.from_json(span), Timestamp.parse(timestamp)) for *span, timestamp in value)
        return frontier

    def _add(self, entries: Iterable[tuple[Span, Timestamp]]) -> None:
        added: dict[str, list[tuple[Span, Timestamp]]] = {}
        for entry in entries:
            added.setdefault(entry[0].table, []).append(entry)
        for table, found in added.items():
            self._tables[table] = _joined([*self._tables.get(table, ()), *found])
            self._least[table] = min(timestamp for _, timestamp in self._tables[table])


def _joined(entries: Iterable[tuple[Span, Timestamp]]) -> list[tuple[Span, Timestamp]]:
    """Sort entries of one table by key, and join neighbours that stand at the same timestamp."""
    result: list[tuple[Span, Timestamp]] = []
    for span, timestamp in sorted(entries, key=lambda entry: entry[0].start):
        if result:
            last, last_timestamp = result[-1]
            if last.end is None or last.end > span.start:
                raise ValueError(f"spans overlap: {last} and {span}")
            if last.end == span.start and last_timestamp == timestamp:
                result[-1] = (Span(last.table, last.start, span.end), timestamp)
                continue
        result.append((span, timestamp))
    return result
