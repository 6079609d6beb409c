"""What broken rangefeeds are derived from, and how they change what a reader yields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedHistory, SimulatedRangefeed
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_conformance.simulated.source import LogSlice, ScanSlice, SimulatedToken, Source, directory_of
from cdc_core import Op, RangefeedContext, RowBatch, Slice, SpanMark, TableSchema, Timestamp, Token

LIVE = "test_rows_and_marks_are_right_while_others_commit"
"""The promise that can be broken in the most ways."""
Row = dict[str, Any]
"""A row of a batch: its columns by name."""
Items = list[RowBatch | SpanMark]

_views: WeakValueDictionary[Path, SimulatedDatabase] = WeakValueDictionary()


class SharedSource(Source):
    """Shares one view of a database within a process: otherwise every part of every suite replays all events."""

    def open(self) -> SimulatedDatabase:
        directory = directory_of(self.context.uri)
        return _views.setdefault(directory, SimulatedDatabase(directory))


class _Part:
    source: Source

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)  # type: ignore[call-arg]
        self.source = SharedSource(context)


class BrokenRangefeed(_Part, SimulatedRangefeed):
    """A driver's part to derive mistakes from."""

    def backfills(self, token: Token) -> bool:
        """Return whether *token* holds the rest of a backfill."""
        rest = SimulatedToken.from_token(token).scan
        tables = self.source.cluster.tables
        return rest is not None and any(
            shape.since == rest.at for span in rest.left for shape in tables[span.table].shapes[1:]
        )


class BrokenPlanner(_Part, SimulatedPlanner):
    """A planner to derive mistakes from."""

    def has_rows(self) -> bool:
        """Return whether any table has a row."""
        cluster = self.source.cluster
        tables = [cluster.tables[name] for name in self.source.names if name in cluster.tables]
        return any(True for table in tables for _ in cluster.rows(table, cluster.high))


class BrokenHistory(_Part, SimulatedHistory):
    """A coordinator's part to derive mistakes from."""


class BrokenReader(_Part, SimulatedReader):
    """A reader to derive mistakes from: a mistake adds one of these methods.

    `log`, `scan`, `backfill` and `rescan` get the items of a slice of their kind, and `log_rows` and so on the rows of
    each batch in it. `row` gets each row of any slice, and `batch` each batch.
    """

    slice_: Slice
    """The slice that is being read, as it is without a tag."""
    tag: Any
    """What the planner has passed with the slice, if anything."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        tagged = isinstance(slice_.payload, Tagged)
        self.tag = slice_.payload.tag if tagged else None
        self.slice_ = slice_ = replace(slice_, payload=slice_.payload.payload) if tagged else slice_
        items = self.changed(self._kind(slice_.payload), list(super().read(slice_)))
        for item in items:
            if isinstance(item, SpanMark):
                yield item
            elif len(item):
                yield self.batch(item)

    def batch(self, rows: RowBatch) -> RowBatch:
        return rows

    def changed(self, kind: str, items: Items) -> Items:
        if hasattr(self, kind):
            return getattr(self, kind)(items)  # type: ignore[no-any-return]
        row = getattr(self, "row", None)
        edit = getattr(self, f"{kind}_rows", row and (lambda rows: list(map(row, rows))))
        return items if edit is None else edited(items, edit)

    def _kind(self, payload: LogSlice | ScanSlice) -> str:
        if isinstance(payload, LogSlice):
            return "log"
        if payload.where is not None:
            return "rescan"
        shapes = self.source.cluster.tables[payload.span.table].shapes[1:]
        return "backfill" if any(shape.since == payload.at for shape in shapes) else "scan"

    def events(self) -> list[Row]:
        """Return all events of the database."""
        path = self.source.database.directory / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A slice's payload together with something that the planner passes to the reader."""

    payload: Any
    tag: Any


def tagged(slices: Sequence[Slice], tag: Any) -> list[Slice]:
    return [replace(slice_, payload=Tagged(payload=slice_.payload, tag=tag)) for slice_ in slices]


def rebuilt(rows: RowBatch, values: Sequence[Row], *, schema: TableSchema | None = None) -> RowBatch:
    """Return a batch like *rows* with *values* as its rows."""
    schema = schema or rows.schema
    types = {"key": schema.key_type, "after": schema.after_type, "before": schema.after_type}
    fields = [pa.field(field.name, types.get(field.name, field.type)) for field in rows.batch.schema]
    return RowBatch(schema=schema, batch=pa.RecordBatch.from_pylist(list(values), schema=pa.schema(fields)))


def edited(items: Items, edit: Callable[[list[Row]], list[Row]]) -> Items:
    """Return *items* with the rows of each batch passed through *edit*."""
    return [item if isinstance(item, SpanMark) else rebuilt(item, edit(item.batch.to_pylist())) for item in items]


def op_of(row: Row) -> Op:
    return Op(row["op"])


def updated_of(row: Row) -> Timestamp:
    return Timestamp(**row["updated"])


def stamp(timestamp: Timestamp) -> Row:
    """Return a timestamp as batches hold it."""
    return {"wall": timestamp.wall, "logical": timestamp.logical}
