"""Reads slices of the simulated database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cdc_conformance.simulated.batches import BatchLayout, changed_rows, scanned_rows
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.placing import serving_nodes
from cdc_conformance.simulated.served import Served, record_served
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_conformance.simulated.source import Source
from cdc_core import RangefeedContext, RowBatch, Slice, SliceReader, Span, SpanMark, Timestamp, executor_locality
from cdc_core.engine.host_requirements import this_executor

__all__ = ["SimulatedReader"]


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
