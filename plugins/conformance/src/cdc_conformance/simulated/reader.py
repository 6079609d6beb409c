"""Reads slices of the simulated database: builds row batches from the versions of rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

from cdc_conformance.rows import Change, rows
from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.placing import Served, record_served, serving_nodes
from cdc_conformance.simulated.scan import parse, point
from cdc_conformance.simulated.source import LogSlice, Piece, ScanSlice, SimulatedOptions, Source
from cdc_conformance.simulated.table import KEY, key_of
from cdc_core import (
    Op,
    RangefeedContext,
    RowBatch,
    Slice,
    SliceReader,
    Span,
    SpanMark,
    TableSchema,
    Timestamp,
    executor_locality,
)
from cdc_core.engine.host_requirements import this_executor

Found = tuple[TableSchema, Change]
"""A row, and its table at the time of the change."""


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
        cluster = self.source.cluster
        payload: LogSlice | ScanSlice = slice_.payload
        if isinstance(payload, ScanSlice):
            self.source.require_history(cluster, payload.at)
            self._note_served(slice_, payload.span, None, payload.at)
            yield from self._batches(_scanned(cluster, payload))
            yield SpanMark(span=payload.span, timestamp=payload.at, resolved=payload.resolved)
            return
        for piece in payload.pieces:
            self.source.require_history(cluster, piece.after)
            self._note_served(slice_, piece.span, piece.after, piece.upto)
            yield from self._batches(_changed(cluster, piece))
            yield SpanMark(span=piece.span, timestamp=piece.upto, resolved=payload.resolved)

    def _batches(self, found: Iterator[Found]) -> Iterator[RowBatch]:
        """Yield the rows in batches. Each has one shape and at most `batch_rows` rows."""
        for _, run in groupby(found, key=lambda each: each[0].version):
            while several := list(islice(run, self._options.batch_rows)):
                changes = [change for _, change in several]
                yield rows(several[0][0], changes, before=self.context.diff, mvcc=self.context.mvcc)

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


def _changed(cluster: Cluster, piece: Piece) -> Iterator[Found]:
    """Yield the new versions of the piece's rows in the order of their timestamps."""
    table = cluster.tables[piece.span.table]
    for at, id_ in table.changes(piece.span, after=piece.after, upto=piece.upto):
        shape = table.shape_at(at)
        version, older = table.at(id_, at), table.at(id_, at.prev())
        assert version is not None
        before = None if older is None or older.cells is None else shape.row(older.cells)
        after = None if version.cells is None else shape.row(version.cells)
        if before is not None and after is not None and shape.key(before) != shape.key(after):
            yield shape.schema, Change(before, op=Op.DELETE, updated=at, before=before)
            before = None
        op = Op.DELETE if after is None else Op.INSERT if before is None else Op.UPDATE
        yield shape.schema, Change(after or before or {KEY: id_}, op=op, updated=at, before=before)


def _scanned(cluster: Cluster, slice_: ScanSlice) -> Iterator[Found]:
    """Yield the rows of the slice as of its time: all, or those that one of the predicates selects."""
    selects = [parse(text)[1] for text in slice_.where or ()]
    table = cluster.tables[slice_.span.table]
    shape = table.shape_at(slice_.at)
    for id_, version in cluster.rows(table, slice_.at):
        if slice_.span.overlap(point(slice_.span.table, key_of(id_))) is None:
            continue
        assert version.cells is not None
        after = shape.row(version.cells)
        if not selects or any(holds({**after, "id": id_}) for holds in selects):
            yield shape.schema, Change(after, op=Op.SCAN, updated=slice_.at, mvcc=version.timestamp)
