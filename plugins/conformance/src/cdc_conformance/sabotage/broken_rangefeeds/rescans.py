"""Rangefeeds that are wrong about rescans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cdc_conformance.sabotage.broken_rangefeeds.edits import Items, edited
from cdc_conformance.sabotage.broken_rangefeeds.parts import BrokenPlanner, BrokenReader
from cdc_conformance.simulated.slices import LogSlice, ScanSlice
from cdc_core import Rescan, RowBatch, Slice, SpanMark, Token


class RescansWhatTheInitialScanRead(BrokenReader):
    """Divides a rescan by the keys that the table had at the start, and drops rows beyond them."""

    def rescan(self, payload: ScanSlice, items: Items) -> Items:  # noqa: ARG002
        return edited(items, lambda rows: [row for row in rows if row["key"]["id"] <= 100])


class IgnoresPredicates(BrokenPlanner):
    """Reads all rows of the table, whatever the predicate says."""

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        return super().scan_again(start, [replace(rescan, where=None) for rescan in rescans])


class ResolvesWhileARescanWaits(BrokenReader):
    """Resolves what the log has before the rows of the rescan."""

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        if isinstance(slice_.payload, LogSlice):
            slice_ = replace(slice_, payload=replace(slice_.payload, resolved=True))
        yield from super().read(slice_)
