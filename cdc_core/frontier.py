"""The frontier: how far every watched span is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cdc_core.span import Span
from cdc_core.timestamp import Timestamp

__all__ = ["Frontier"]


class Frontier:
    """Resolved timestamp per span; its minimum is the high-water mark.

    A new frontier watches its spans at timestamp zero, which means "nothing is resolved". Spans only move forward. A
    part of a span may be forwarded alone: the span is split, and joined again when neighbours meet.
    """

    __slots__ = ("_entries",)

    def __init__(self, spans: Iterable[Span], timestamp: Timestamp = Timestamp()) -> None:
        self._entries: list[tuple[Span, Timestamp]] = _joined((span, timestamp) for span in spans)

    def __iter__(self) -> Iterator[tuple[Span, Timestamp]]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frontier) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Frontier({', '.join(f'{span}@{timestamp}' for span, timestamp in self._entries)})"

    @property
    def high_water(self) -> Timestamp:
        """The minimum over all watched spans; zero while any span has nothing resolved, or when none is watched."""
        return min((timestamp for _, timestamp in self._entries), default=Timestamp())

    @property
    def latest(self) -> Timestamp:
        """The maximum over all watched spans."""
        return max((timestamp for _, timestamp in self._entries), default=Timestamp())

    def of(self, span: Span) -> Timestamp:
        """The minimum over the watched parts of *span*; zero when no part of it is watched."""
        return min((timestamp for watched, timestamp in self._entries if watched.overlap(span)), default=Timestamp())

    def watching(self, spans: Iterable[Span]) -> Frontier:
        """Return the frontier of the tables of *spans*, each a whole table.

        What this one watches of them stays where it is; a table that it does not watch begins at its high-water mark.
        """
        frontier = Frontier(())
        for span in spans:
            known = [entry for entry in self._entries if entry[0].table == span.table]
            frontier._entries += known or [(span, self.high_water)]
        frontier._entries = _joined(frontier._entries)
        return frontier

    def forward(self, span: Span, timestamp: Timestamp) -> bool:
        """Raise every watched key of *span* to *timestamp* and return whether the high-water mark advanced.

        Keys that are already at or past *timestamp* do not change; keys that are not watched are ignored.
        """
        before = self.high_water
        entries: list[tuple[Span, Timestamp]] = []
        for watched, current in self._entries:
            common = watched.overlap(span)
            if common is None or current >= timestamp:
                entries.append((watched, current))
                continue
            entries.extend((rest, current) for rest in watched.minus(common))
            entries.append((common, timestamp))
        self._entries = _joined(entries)
        return self.high_water > before

    def to_json(self) -> list[list[Any]]:
        """Return the frontier as JSON values, for `from_json`."""
        return [[*span.to_json(), str(timestamp)] for span, timestamp in self._entries]

    @classmethod
    def from_json(cls, value: Iterable[Sequence[Any]]) -> Frontier:
        frontier = cls(())
        frontier._entries = _joined((Span.from_json(span), Timestamp.parse(timestamp)) for *span, timestamp in value)
        return frontier


def _joined(entries: Iterable[tuple[Span, Timestamp]]) -> list[tuple[Span, Timestamp]]:
    """Sort by table and key, and join neighbours that stand at the same timestamp."""
    result: list[tuple[Span, Timestamp]] = []
    for span, timestamp in sorted(entries, key=lambda entry: (entry[0].table, entry[0].start)):
        if result:
            last, last_timestamp = result[-1]
            if last.table == span.table:
                if last.end is None or last.end > span.start:
                    raise ValueError(f"spans overlap: {last} and {span}")
                if last.end == span.start and last_timestamp == timestamp:
                    result[-1] = (Span(last.table, last.start, span.end), timestamp)
                    continue
        result.append((span, timestamp))
    return result
