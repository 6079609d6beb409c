"""The parts that broken rangefeeds are derived from, and the slices that they exchange."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from cdc_conformance.sabotage.broken_rangefeeds.edits import Items, Row, edited
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.history import SimulatedHistory
from cdc_conformance.simulated.planner import SimulatedPlanner
from cdc_conformance.simulated.rangefeed import SimulatedRangefeed
from cdc_conformance.simulated.reader import SimulatedReader
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_conformance.simulated.source import Source, directory_of
from cdc_conformance.simulated.tokens import SimulatedToken
from cdc_core import RangefeedContext, RowBatch, Slice, SpanMark, Token

__all__ = ["BrokenHistory", "BrokenPlanner", "BrokenRangefeed", "BrokenReader", "SharedSource", "Tagged", "tagged"]

_views: WeakValueDictionary[Path, SimulatedDatabase] = WeakValueDictionary()


class SharedSource(Source):
    """Shares one view of a database within a process: otherwise every part of every suite replays all events."""

    def open(self) -> SimulatedDatabase:
        directory = directory_of(self.context.uri)
        return _views.setdefault(directory, SimulatedDatabase(directory))


class BrokenRangefeed(SimulatedRangefeed):
    """A driver's part to derive mistakes from."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = SharedSource(context)

    def backfills(self, token: Token) -> bool:
        """Return whether *token* holds the rest of a backfill."""
        rest = SimulatedToken.from_token(token).scan
        tables = self.source.cluster.tables
        return rest is not None and any(
            shape.since == rest.at for span in rest.left for shape in tables[span.table].shapes[1:]
        )


class BrokenPlanner(SimulatedPlanner):
    """A planner to derive mistakes from."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = SharedSource(context)


class BrokenHistory(SimulatedHistory):
    """A coordinator's part to derive mistakes from."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = SharedSource(context)


class BrokenReader(SimulatedReader):
    """A reader to derive mistakes from.

    All items pass through `log`, `scan`, `backfill` or `rescan`, then through `batch` or `mark`.
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = SharedSource(context)

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        items = list(super().read(slice_))
        if isinstance(slice_.payload, LogSlice):
            items = self.log(slice_.payload, items)
        elif isinstance(slice_.payload, ScanSlice) and slice_.payload.where is not None:
            items = self.rescan(slice_.payload, items)
        elif isinstance(slice_.payload, ScanSlice):
            again = self._is_backfill(slice_.payload)
            items = self.backfill(slice_.payload, items) if again else self.scan(slice_.payload, items)
        for item in items:
            if isinstance(item, SpanMark):
                yield self.mark(item)
            elif len(item):
                yield self.batch(item)

    def log(self, payload: LogSlice, items: Items) -> Items:  # noqa: ARG002
        return self.each(items)

    def scan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return self.each(items)

    def backfill(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return self.each(items)

    def rescan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return self.each(items)

    def batch(self, rows: RowBatch) -> RowBatch:
        return rows

    def mark(self, mark: SpanMark) -> SpanMark:
        return mark

    def row(self, row: Row) -> Row:
        """Change one row, a dict of its batch's columns. Called for each row, unless `log` or another is overridden."""
        return row

    def each(self, items: Items) -> Items:
        if type(self).row is BrokenReader.row:
            return items
        return edited(items, lambda rows: [self.row(row) for row in rows])

    def _is_backfill(self, payload: ScanSlice) -> bool:
        return any(shape.since == payload.at for shape in self.source.cluster.tables[payload.span.table].shapes[1:])

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
