"""One table of the simulated database: every version of every row, and every version of its shape."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.keys import END_KEY, key_of
from cdc_core import Column, ColumnType, Kind, Span, TableName, TableSchema, Timestamp

__all__ = ["Cells", "Shape", "Table", "Version"]

Cells = Mapping[str, Any]
"""Values of a row by cell. A cell belongs to one column; a later column of the same name has another cell."""

TYPES = {
    "int": ColumnType(kind=Kind.INT, source="bigint", bits=64),
    "string": ColumnType(kind=Kind.STRING, source="text"),
    "float": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "bool": ColumnType(kind=Kind.BOOL, source="boolean"),
}
_PYTHON = {"int": int, "string": str, "float": float, "bool": bool}
_KEY = "id"


@dataclass(frozen=True, slots=True)
class Version:
    """A row from `timestamp` on; deleted if `cells` is None."""

    timestamp: Timestamp
    cells: Cells | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's columns from `since` on, and the cell of each."""

    since: Timestamp
    schema: TableSchema
    cells: Mapping[str, str]

    def row(self, cells: Cells) -> dict[str, Any]:
        """Return the row of *cells* in this shape, by column."""
        return {column: cells.get(cell) for column, cell in self.cells.items()}


class Table:
    """Rows by `id`, each with its versions in the order of their timestamps."""

    def __init__(self, name: TableName, columns: Sequence[tuple[str, str]], created: Timestamp) -> None:
        if not columns or columns[0][0] != _KEY or columns[0][1] != "int":
            raise StatementError(f"table {name}: the first column must be the primary key {_KEY!r} of type 'int'")
        self.name = name
        self.created = created
        self.dropped: Timestamp | None = None
        self.shapes: list[Shape] = []
        self._versions: dict[int, list[Version]] = {}
        self._order: list[tuple[Timestamp, int]] = []
        described = tuple(self._column(column, type_) for column, type_ in columns)
        self._add_shape(created, described, {column: column for column, _ in columns})

    @property
    def span(self) -> Span:
        return Span(self.name.full)

    @property
    def newest_shape(self) -> Shape:
        return self.shapes[-1]

    @property
    def latest(self) -> Timestamp:
        """The greatest timestamp of any row version or shape."""
        return max(self._order[-1][0] if self._order else self.created, self.newest_shape.since)

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
        cells = dict(base) if base is not None else {_KEY: id_}
        for name, value in values.items():
            if name not in shape.cells:
                raise StatementError(f"table {self.name} has no column {name!r}; it has {', '.join(shape.cells)}")
            cells[shape.cells[name]] = _checked(self.name, shape.schema.column(name), value)
        for column in shape.schema.columns:
            if not column.nullable and cells.get(shape.cells[column.name]) is None:
                raise StatementError(f"table {self.name}: column {column.name!r} of row {id_} must not be null")
        return cells

    def add(self, id_: int, version: Version) -> None:
        """Add a version that is newer than all others of its row."""
        self._versions.setdefault(id_, []).append(version)
        bisect.insort(self._order, (version.timestamp, id_))

    def add_column(self, name: str, type_: str, since: Timestamp) -> None:
        shape = self.newest_shape
        if name in shape.cells:
            raise StatementError(f"table {self.name} already has a column {name!r}")
        cells = {**shape.cells, name: f"{name}#{shape.schema.version + 1}"}
        self._add_shape(since, (*shape.schema.columns, self._column(name, type_)), cells)

    def drop_column(self, name: str, since: Timestamp) -> None:
        shape = self.newest_shape
        if name not in shape.cells or name == _KEY:
            raise StatementError(f"table {self.name} has no column {name!r} that can be dropped")
        columns = tuple(column for column in shape.schema.columns if column.name != name)
        self._add_shape(since, columns, {column: cell for column, cell in shape.cells.items() if column != name})

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

    def _add_shape(self, since: Timestamp, columns: tuple[Column, ...], cells: Mapping[str, str]) -> None:
        version = len(self.shapes) + 1
        schema = TableSchema(name=self.name, version=version, columns=columns, primary_key=(_KEY,))
        self.shapes.append(Shape(since=since, schema=schema, cells=cells))

    def _column(self, name: str, type_: str) -> Column:
        if type_ not in TYPES:
            raise StatementError(f"column {name!r} has the unknown type {type_!r}; the types are {', '.join(TYPES)}")
        return Column(name=name, type=TYPES[type_], nullable=name not in (_KEY, "n"))


def in_span(id_: int, span: Span) -> bool:
    return span.start <= key_of(id_) < (END_KEY if span.end is None else span.end)


def _checked(table: TableName, column: Column, value: Any) -> Any:
    if value is None:
        return None
    wanted = _PYTHON[next(name for name, type_ in TYPES.items() if type_ == column.type)]
    fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not fits or (wanted is int and not -(2**63) <= value < 2**63):
        raise StatementError(f"table {table}: column {column.name!r} cannot hold {value!r}")
    return value


def _time(version: Version) -> Timestamp:
    return version.timestamp


def _first(entry: tuple[Timestamp, int]) -> Timestamp:
    return entry[0]
