"""One table of the simulated database: every version of every row, and every shape."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.shapes import KEY, Cells, Shape, checked
from cdc_conformance.simulated.topology import END_KEY, key_of
from cdc_core import Span, TableName, Timestamp

__all__ = ["Table", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """A row from `timestamp` on; deleted if `cells` is None."""

    timestamp: Timestamp
    cells: Cells | None


class Table:
    """Rows by `id`, each with its versions in the order of their timestamps."""

    def __init__(self, name: TableName, columns: Sequence[tuple[str, str]], created: Timestamp) -> None:
        self.name = name
        self.created = created
        self.shapes = [Shape.first(name, columns, created)]
        self._versions: dict[int, list[Version]] = {}
        self._order: list[tuple[Timestamp, int]] = []

    @property
    def span(self) -> Span:
        return Span(self.name.full)

    @property
    def newest_shape(self) -> Shape:
        return self.shapes[-1]

    def shape_at(self, timestamp: Timestamp) -> Shape:
        """Return the shape of a row that was written at *timestamp*."""
        return next((shape for shape in reversed(self.shapes) if shape.since <= timestamp), self.shapes[0])

    def newest(self, id_: int) -> Version | None:
        versions = self._versions.get(id_)
        return versions[-1] if versions else None

    def at(self, id_: int, timestamp: Timestamp) -> Version | None:
        """Return the version of the row as of *timestamp*; None if there was none yet."""
        versions = self._versions.get(id_, ())
        place = bisect.bisect_right(versions, timestamp, key=_time)
        return versions[place - 1] if place else None

    def rows(self, timestamp: Timestamp, span: Span | None = None) -> Iterator[tuple[int, Version]]:
        """Yield the rows that exist as of *timestamp*, in key order."""
        for id_ in sorted(self._versions):
            if span is None or in_span(id_, span):
                version = self.at(id_, timestamp)
                if version is not None and version.cells is not None:
                    yield id_, version

    def changes(self, span: Span, *, after: Timestamp, upto: Timestamp) -> Iterator[tuple[Timestamp, int]]:
        """Yield timestamp and `id` of each new version in *span* later than *after* and up to *upto*, oldest first."""
        first = bisect.bisect_right(self._order, after, key=_first)
        for timestamp, id_ in self._order[first:]:
            if timestamp > upto:
                return
            if in_span(id_, span):
                yield timestamp, id_

    def cells_of(self, id_: int, values: Mapping[str, Any], base: Cells | None) -> Cells:
        """Return the cells of a row: *values*, and for all other columns those of *base*. Raises: StatementError."""
        shape = self.newest_shape
        cells = dict(base) if base is not None else {KEY: id_}
        for name, value in values.items():
            if name not in shape.cells:
                raise StatementError(f"table {self.name} has no column {name!r}; it has {', '.join(shape.cells)}")
            cells[shape.cells[name]] = checked(self.name, shape.schema.column(name), value)
        row = shape.row(cells)
        for column in shape.schema.columns:
            if not column.nullable and row[column.name] is None:
                raise StatementError(f"table {self.name}: column {column.name!r} of row {id_} must not be null")
        return cells

    def add(self, id_: int, version: Version) -> None:
        """Add a version that is newer than all others of its row."""
        self._versions.setdefault(id_, []).append(version)
        bisect.insort(self._order, (version.timestamp, id_))

    def collect(self, threshold: Timestamp) -> None:
        """Forget the versions that no read as of *threshold* or later can see."""
        for id_, versions in list(self._versions.items()):
            place = bisect.bisect_right(versions, threshold, key=_time)
            first = max(place - 1, 0)
            if place and versions[first].cells is None:
                first += 1  # the row did not exist as of the threshold
            del versions[:first]
            if not versions:
                del self._versions[id_]
        self._order = sorted((version.timestamp, id_) for id_, kept in self._versions.items() for version in kept)


def in_span(id_: int, span: Span) -> bool:
    return span.start <= key_of(id_) < (END_KEY if span.end is None else span.end)


def _time(version: Version) -> Timestamp:
    return version.timestamp


def _first(entry: tuple[Timestamp, int]) -> Timestamp:
    return entry[0]
