"""How broken rangefeeds change what the simulated one hands out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.rangefeed import LogSlice, ScanSlice, SimulatedRangefeed, directory_of
from cdc_core import Mark, Op, RowBatch, Slice, TableSchema, Timestamp

__all__ = ["Editor", "Row", "Tagged", "edited", "of", "one_row", "rebuilt", "stamp", "tagged", "updated"]

Row = dict[str, Any]

_views: WeakValueDictionary[Path, SimulatedDatabase] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A slice's payload with something that the planner tells the reader."""

    payload: Any
    tag: Any


def rebuilt(rows: RowBatch, values: Sequence[Row], *, schema: TableSchema | None = None) -> RowBatch:
    """Return a batch of *values* in place of the rows of *rows*."""
    schema = schema or rows.schema
    types = {"key": schema.key_type, "after": schema.after_type, "before": schema.after_type}
    fields = [pa.field(field.name, types.get(field.name, field.type)) for field in rows.batch.schema]
    return RowBatch(schema=schema, batch=pa.RecordBatch.from_pylist(list(values), schema=pa.schema(fields)))


def stamp(timestamp: Timestamp) -> Row:
    """Return a timestamp as a batch holds it."""
    return {"wall": timestamp.wall, "logical": timestamp.logical}


class Editor(SimulatedRangefeed):
    """Reads as the simulated rangefeed does, and passes everything through `log`, `scan`, `row` and `mark`."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        items = list(super().read(slice_))
        if isinstance(slice_.payload, LogSlice):
            items = self.log(slice_.payload, items)
        elif isinstance(slice_.payload, ScanSlice):
            items = self.scan(slice_.payload, items)
        for item in items:
            if isinstance(item, Mark):
                yield self.mark(item)
            elif len(item):
                yield self.batch(item)

    @property
    def _database(self) -> SimulatedDatabase:
        # Instances of one process share their view of the database: seventy suites replay it otherwise again and again.
        if self._opened is None:
            directory = directory_of(self.context.uri)
            self._opened = _views.setdefault(directory, SimulatedDatabase(directory))
        return self._opened

    def log(self, payload: LogSlice, items: list[RowBatch | Mark]) -> list[RowBatch | Mark]:  # noqa: ARG002
        return self.each(items)

    def scan(self, payload: ScanSlice, items: list[RowBatch | Mark]) -> list[RowBatch | Mark]:  # noqa: ARG002
        return self.each(items)

    def batch(self, rows: RowBatch) -> RowBatch:
        return rows

    def mark(self, mark: Mark) -> Mark:
        return mark

    def row(self, row: Row) -> Row:
        """Change one row, given with its columns; called for each row of log and scan unless these are overridden."""
        return row

    def each(self, items: list[RowBatch | Mark]) -> list[RowBatch | Mark]:
        if type(self).row is Editor.row:
            return items
        return edited(items, lambda rows: [self.row(row) for row in rows])

    def events(self) -> list[Row]:
        """Return all that has ever happened to the database."""
        path = self._database.directory / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


def edited(items: list[RowBatch | Mark], edit: Callable[[list[Row]], list[Row]]) -> list[RowBatch | Mark]:
    """Return *items* with the rows of each batch passed through *edit*."""
    return [item if isinstance(item, Mark) else rebuilt(item, edit(item.batch.to_pylist())) for item in items]


def of(row: Row) -> Op:
    return Op(row["op"])


def updated(row: Row) -> Timestamp:
    return Timestamp(**row["updated"])


def tagged(slices: Sequence[Slice], tag: Any) -> list[Slice]:
    return [replace(slice_, payload=Tagged(payload=slice_.payload, tag=tag)) for slice_ in slices]


def one_row(schema: TableSchema, *, id_: int, after: Row, at: Timestamp) -> RowBatch:
    """Return a batch with one updated row."""
    return RowBatch.of(
        schema,
        op=pa.array([int(Op.UPDATE)], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([at.wall], pa.int64()), pa.array([at.logical], pa.int32())),
        key=pa.array([{"id": id_}], schema.key_type),
        after=pa.array([after], schema.after_type),
    )
