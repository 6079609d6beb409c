"""Reads slices of the simulated database: builds row batches from the versions of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.placing import Served, record_served, serving_nodes
from cdc_conformance.simulated.scan import parse, point
from cdc_conformance.simulated.shapes import KEY, Shape
from cdc_conformance.simulated.source import SimulatedOptions, Source
from cdc_conformance.simulated.tokens import LogSlice, Piece, ScanSlice
from cdc_conformance.simulated.topology import key_of
from cdc_core import Op, RangefeedContext, RowBatch, Slice, SliceReader, Span, SpanMark, Timestamp, executor_locality
from cdc_core.engine.host_requirements import this_executor

__all__ = ["BatchLayout", "SimulatedReader", "changed_rows", "scanned_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLayout:
    """The optional columns of a batch, and how many rows it may have."""

    diff: bool
    mvcc: bool
    rows: int


def changed_rows(cluster: Cluster, piece: Piece, layout: BatchLayout) -> Iterator[RowBatch]:
    """Yield the new versions of the piece's rows in the order of their timestamps."""
    table = cluster.tables[piece.span.table]
    rows = _Rows(layout)
    for timestamp, id_ in table.changes(piece.span, after=piece.after, upto=piece.upto):
        shape = table.shape_at(timestamp)
        if rows.are_full or rows.shape is not shape:
            yield from rows.take(shape)
        version, older = table.at(id_, timestamp), table.at(id_, timestamp.prev())
        assert version is not None
        before = None if older is None or older.cells is None else shape.row(older.cells)
        after = None if version.cells is None else shape.row(version.cells)
        if before is not None and after is not None and shape.key(before) != shape.key(after):
            rows.add(shape.key(before), op=Op.DELETE, updated=timestamp, mvcc=timestamp, after=None, before=before)
            before = None
        key = shape.key(after or before or {KEY: id_})
        op = Op.DELETE if after is None else Op.INSERT if before is None else Op.UPDATE
        rows.add(key, op=op, updated=timestamp, mvcc=timestamp, after=after, before=before)
    yield from rows.take(None)


def scanned_rows(
    cluster: Cluster, span: Span, at: Timestamp, layout: BatchLayout, *, where: Sequence[str] = ()
) -> Iterator[RowBatch]:
    """Yield the rows of *span* as of *at*; with *where*, those that one of the predicates selects."""
    selects = [parse(text)[1] for text in where]
    table = cluster.tables[span.table]
    shape = table.shape_at(at)
    rows = _Rows(layout)
    rows.shape = shape
    for id_, version in cluster.rows(table, at):
        if span.overlap(point(span.table, key_of(id_))) is None:
            continue
        assert version.cells is not None
        after = shape.row(version.cells)
        if selects and not any(holds({**after, "id": id_}) for holds in selects):
            continue
        if rows.are_full:
            yield from rows.take(shape)
        rows.add(shape.key(after), op=Op.SCAN, updated=at, mvcc=version.timestamp, after=after, before=None)
    yield from rows.take(None)


@dataclass(slots=True)
class _Rows:
    """Collects rows of one shape for a batch."""

    layout: BatchLayout
    shape: Shape | None = None
    _op: list[int] = field(default_factory=list)
    _key: list[dict[str, Any]] = field(default_factory=list)
    _updated: list[Timestamp] = field(default_factory=list)
    _mvcc: list[Timestamp] = field(default_factory=list)
    _after: list[dict[str, Any] | None] = field(default_factory=list)
    _before: list[dict[str, Any] | None] = field(default_factory=list)

    @property
    def are_full(self) -> bool:
        return len(self._op) >= self.layout.rows

    def add(
        self,
        key: dict[str, Any],
        *,
        op: Op,
        updated: Timestamp,
        mvcc: Timestamp,
        after: dict[str, Any] | None,
        before: dict[str, Any] | None,
    ) -> None:
        self._op.append(op)
        self._key.append(key)
        self._updated.append(updated)
        self._mvcc.append(mvcc)
        self._after.append(after)
        self._before.append(before)

    def take(self, following: Shape | None) -> Iterator[RowBatch]:
        """Yield the collected rows, if any, as a batch; the next rows have the shape *following*."""
        if self._op:
            assert self.shape is not None
            schema = self.shape.schema
            yield RowBatch.of(
                schema,
                op=pa.array(self._op, pa.uint8()),
                updated=_timestamps(self._updated),
                mvcc=_timestamps(self._mvcc) if self.layout.mvcc else None,
                key=pa.array(self._key, schema.key_type),
                after=pa.array(self._after, schema.after_type),
                before=pa.array(self._before, schema.after_type) if self.layout.diff else None,
            )
        self.shape = following
        for rows in (self._op, self._key, self._updated, self._mvcc, self._after, self._before):
            rows.clear()


def _timestamps(values: list[Timestamp]) -> pa.StructArray:
    wall = pa.array([value.wall for value in values], pa.int64())
    return RowBatch.timestamps(wall, pa.array([value.logical for value in values], pa.int32()))


class SimulatedReader(SliceReader):
    """Reads the versions of rows that the database's history holds between two timestamps, or as of one."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self.source = Source(context)
        self._options: SimulatedOptions = context.options

    def check(self) -> None:
        self.source.require_reachable()

    def local_directory(self) -> Path:
        return self.source.database.directory

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        layout = BatchLayout(diff=self.context.diff, mvcc=self.context.mvcc, rows=self._options.batch_rows)
        cluster = self.source.cluster
        payload: LogSlice | ScanSlice = slice_.payload
        if isinstance(payload, ScanSlice):
            self.source.require_history(cluster, payload.at)
            self._note_served(slice_, payload.span, None, payload.at)
            yield from scanned_rows(cluster, payload.span, payload.at, layout, where=payload.where or ())
            yield SpanMark(span=payload.span, timestamp=payload.at, resolved=payload.resolved)
            return
        for piece in payload.pieces:
            self.source.require_history(cluster, piece.after)
            self._note_served(slice_, piece.span, piece.after, piece.upto)
            yield from changed_rows(cluster, piece, layout)
            yield SpanMark(span=piece.span, timestamp=piece.upto, resolved=payload.resolved)

    def _note_served(self, slice_: Slice, span: Span, after: Timestamp | None, upto: Timestamp) -> None:
        cluster, here, executor = self.source.cluster, executor_locality(), this_executor()
        for part, node in serving_nodes(cluster, span, upto, here):
            entry = Served(
                feed=self.source.feed,
                executor=executor.id,
                host=executor.host,
                locality=here,
                wanted=slice_.locality,
                span=part,
                after=after,
                upto=upto,
                node=node,
                node_locality=cluster.nodes[node].locality,
            )
            record_served(self.source.database.directory, entry)

    def close(self) -> None:
        self.source.close()
