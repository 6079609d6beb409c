"""Reads slices of the simulated database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cdc_conformance.simulated.batches import BatchLayout, changed_rows, scanned_rows
from cdc_conformance.simulated.options import SimulatedOptions
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_conformance.simulated.source import Source
from cdc_core import RangefeedContext, RowBatch, Slice, SliceReader, SpanMark

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
            yield from scanned_rows(cluster, payload.span, payload.at, layout, where=payload.where or ())
            yield SpanMark(span=payload.span, timestamp=payload.at, resolved=payload.resolved)
            return
        for piece in payload.pieces:
            self.source.require_history(cluster, piece.after)
            yield from changed_rows(cluster, piece, layout)
            yield SpanMark(span=piece.span, timestamp=piece.upto, resolved=payload.resolved)

    def close(self) -> None:
        self.source.close()
