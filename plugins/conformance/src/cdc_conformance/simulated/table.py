"""One table of the simulated database: every version of every row, and every shape that the table has had."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any

from cdc_conformance.simulated.errors import StatementError
from cdc_core import Column, ColumnType, Kind, SchemaChange, ShapeChange, Span, TableName, TableSchema, Timestamp

_OFFSET = 2**63
END_KEY = b"\xff" * 9
"""Greater than the key of every row."""
Cells = Mapping[str, Any]
"""Values of a row by cell. A cell belongs to one column; a later column of the same name has another cell."""
KEY = "id"
TYPES = {
    "int": ColumnType(kind=Kind.INT, source="bigint", bits=64),
    "string": ColumnType(kind=Kind.STRING, source="text"),
    "float": ColumnType(kind=Kind.FLOAT, source="double precision", bits=64),
    "bool": ColumnType(kind=Kind.BOOL, source="boolean"),
}
_PYTHON = {"int": int, "string": str, "float": float, "bool": bool}


def key_of(id_: int) -> bytes:
    """Return the key of the row with this `id`. Raises: OverflowError beyond 64 bits."""
    return (id_ + _OFFSET).to_bytes(8, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """What a row has in a cell that was never written: `value`, or the value of the cell `source` as `type`."""

    value: Any = None
    source: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's columns from `since` on. A change gives the table a new shape and touches no row."""

    since: Timestamp
    schema: TableSchema
    cells: Mapping[str, str]
    """The cell of each column."""
    fills: Mapping[str, Fill] = field(default_factory=dict)
    """By cell. Cells without one are null until they are written."""
    change: SchemaChange | None = None
    """What makes this shape differ from the one before; None for a new table."""

    @classmethod
    def first(cls, table: TableName, columns: Sequence[tuple[str, str]], since: Timestamp) -> Shape:
        if not columns or tuple(columns[0]) != (KEY, "int"):
            raise StatementError(f"table {table}: the first column must be the primary key {KEY!r} of type 'int'")
        described = tuple(_column(column, type_) for column, type_ in columns)
        schema = TableSchema(name=table, version=1, columns=described, primary_key=(KEY,))
        return cls(since=since, schema=schema, cells={column: column for column, _ in columns})

    def row(self, cells: Cells) -> dict[str, Any]:
        """Return the row of *cells* in this shape, by column."""
        return {column: self._value(cells, cell) for column, cell in self.cells.items()}

    def with_column(self, name: str, type_: str, *, default: Any, since: Timestamp) -> Shape:
        """Return the shape with one more column, which is *default* in every row that does not say otherwise."""
        self._require_free(name)
        column = _column(name, type_)
        value = checked(self.schema.name, column, default)
        kind = ShapeChange.COLUMN_ADDED if default is None else ShapeChange.COLUMN_FILLED
        what = f"column {name} was added" + ("" if default is None else " with a default")
        following = self._changed(kind, what, (*self.schema.columns, column), since)
        cell = self._new_cell(name)
        return replace(following, cells={**self.cells, name: cell}, fills={**self.fills, cell: Fill(value=value)})

    def without_column(self, name: str, *, since: Timestamp) -> Shape:
        self._require(name, "dropped")
        columns = tuple(column for column in self.schema.columns if column.name != name)
        following = self._changed(ShapeChange.COLUMN_DROPPED, f"column {name} was dropped", columns, since)
        return replace(following, cells={column: cell for column, cell in self.cells.items() if column != name})

    def with_name(self, name: str, new: str, *, since: Timestamp) -> Shape:
        """Return the shape with the column *name* called *new*."""
        self._require(name, "renamed")
        self._require_free(new)
        columns = tuple(replace(one, name=new) if one.name == name else one for one in self.schema.columns)
        what = f"column {name} was renamed to {new}"
        following = self._changed(ShapeChange.COLUMN_RENAMED, what, columns, since)
        return replace(following, cells={new if one == name else one: cell for one, cell in self.cells.items()})

    def with_type(self, name: str, type_: str, *, since: Timestamp) -> Shape:
        """Return the shape in which the column *name* has another type, with the value of each row computed again."""
        self._require(name, "changed")
        known = next(known for known, type_of in TYPES.items() if type_of == self.schema.column(name).type)
        if type_ == known or (type_ != "string" and (known, type_) != ("int", "float")):
            raise StatementError(f"table {self.schema.name}: column {name!r} of type {known!r} cannot become {type_!r}")
        columns = tuple(_column(name, type_) if one.name == name else one for one in self.schema.columns)
        what = f"the type of column {name} was changed to {type_}"
        following = self._changed(ShapeChange.VALUES_CHANGED, what, columns, since)
        cell = self._new_cell(name)
        fill = Fill(source=self.cells[name], type=type_)
        return replace(following, cells={**self.cells, name: cell}, fills={**self.fills, cell: fill})

    def with_key(self, columns: Sequence[str], *, since: Timestamp) -> Shape:
        """Return the shape with another primary key. It has `id`, and a column in it is never null anymore."""
        if KEY not in columns or len({*columns}) < len(columns) or not self.cells.keys() >= {*columns}:
            raise StatementError(f"table {self.schema.name} cannot have the key ({', '.join(columns)})")
        what = f"the key changed from ({', '.join(self.schema.primary_key)}) to ({', '.join(columns)})"
        described = tuple(
            replace(one, nullable=one.nullable and one.name not in columns) for one in self.schema.columns
        )
        following = self._changed(ShapeChange.KEY_CHANGED, what, described, since)
        return replace(following, schema=replace(following.schema, primary_key=tuple(columns)))

    def key(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key of *row*, by column."""
        return {column: row[column] for column in self.schema.primary_key}

    def _value(self, cells: Cells, cell: str) -> Any:
        if cell in cells or cell not in self.fills:
            return cells.get(cell)
        fill = self.fills[cell]
        if not fill.source:
            return fill.value
        value = self._value(cells, fill.source)
        return None if value is None else _PYTHON[fill.type](value)

    def _changed(self, kind: ShapeChange, what: str, columns: tuple[Column, ...], since: Timestamp) -> Shape:
        schema = replace(self.schema, version=self.schema.version + 1, columns=columns)
        change = SchemaChange(table=schema.name.full, kind=kind, what=what)
        return replace(self, since=since, schema=schema, change=change)

    def _new_cell(self, column: str) -> str:
        return f"{column}#{self.schema.version + 1}"

    def _require(self, column: str, what: str) -> None:
        if column not in self.cells or not self.schema.column(column).nullable:
            raise StatementError(f"table {self.schema.name} has no column {column!r} that can be {what}")

    def _require_free(self, column: str) -> None:
        if column in self.cells:
            raise StatementError(f"table {self.schema.name} already has a column {column!r}")


def checked(table: TableName, column: Column, value: Any) -> Any:
    """Return *value* if the column can hold it. Raises: StatementError."""
    if value is None:
        return None
    wanted = _PYTHON[next(name for name, type_ in TYPES.items() if type_ == column.type)]
    fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not fits or (wanted is int and not -(2**63) <= value < 2**63):
        raise StatementError(f"table {table}: column {column.name!r} cannot hold {value!r}")
    return value


def _column(name: str, type_: str) -> Column:
    if type_ not in TYPES:
        raise StatementError(f"column {name!r} has the unknown type {type_!r}; the types are {', '.join(TYPES)}")
    return Column(name=name, type=TYPES[type_], nullable=name not in (KEY, "n"))


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
        place = bisect.bisect_right(versions, timestamp, key=attrgetter("timestamp"))
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
        first = bisect.bisect_right(self._order, after, key=itemgetter(0))
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
            place = bisect.bisect_right(versions, threshold, key=attrgetter("timestamp"))
            first = max(place - 1, 0)
            if place and versions[first].cells is None:
                first += 1  # the row did not exist as of the threshold
            del versions[:first]
            if not versions:
                del self._versions[id_]
        self._order = sorted((version.timestamp, id_) for id_, kept in self._versions.items() for version in kept)


def in_span(id_: int, span: Span) -> bool:
    return span.start <= key_of(id_) < (END_KEY if span.end is None else span.end)
