"""Steps along the simulated history: where they end, at schema boundaries at the latest, and their slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.placing import placed
from cdc_conformance.simulated.source import Piece
from cdc_conformance.simulated.table import Table
from cdc_core import Frontier, PlacementRules, SchemaChange, Span, StepLimit, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Tables have another shape from `at` on. No row has this timestamp, so it is that of the backfill."""

    at: Timestamp
    changes: tuple[SchemaChange, ...]

    def passed(self, frontier: Frontier) -> Frontier:
        """Return *frontier*, which has reached the boundary, behind it."""
        following = Frontier.from_json(frontier.to_json())
        for change in self.changes:
            following.forward(Span(change.table), self.at)
        return following


def next_boundary(cluster: Cluster, frontier: Frontier) -> Boundary | None:
    """Return the first boundary that *frontier* has not passed, if there is one."""
    ahead = [
        (shape.since, shape.change)
        for name in {span.table for span, _ in frontier}
        for shape in cluster.tables[name].shapes
        if shape.change is not None and shape.since > frontier.of(Span(name))
    ]
    if not ahead:
        return None
    at = min(since for since, _ in ahead)
    changes = sorted((change for since, change in ahead if since == at), key=lambda change: change.table)
    return Boundary(at=at, changes=tuple(changes))


def reached_boundary(cluster: Cluster, frontier: Frontier) -> Boundary | None:
    """Return the boundary up to which *frontier* has read everything of all tables, if it is at one."""
    boundary = next_boundary(cluster, frontier)
    return boundary if boundary is not None and frontier.high_water >= boundary.at.prev() else None


def advanced(cluster: Cluster, frontier: Frontier, limit: StepLimit, *, before: Timestamp | None = None) -> Frontier:
    """Return *frontier* at the end of the next step: *frontier* itself while nothing more is resolved.

    Every span advances to its resolved timestamp, but not past the next schema boundary or *before*, where all tables
    wait for each other. A step that would exceed *limit* ends at the timestamp at which it is full.
    """
    following = Frontier.from_json(frontier.to_json())
    boundary = next_boundary(cluster, frontier)
    ends = [at.prev() for at in (boundary.at if boundary else None, before) if at is not None]
    for span, _ in frontier:
        for resolved_span, resolved in cluster.resolved(span.table):
            common = span.overlap(resolved_span)
            if common is not None:
                following.forward(common, min([resolved, *ends]))
    full = _full(cluster, frontier, following, limit)
    return following if full is None else _cut(frontier, following, full)


def pieces(
    cluster: Cluster, start: Frontier, end: Frontier, placement: PlacementRules, *, seed: int = 0
) -> Iterator[Piece]:
    """Yield the pieces of the step from *start* to *end*, by range, each with the node that it is read at."""
    found = [
        (after, upto, common)
        for after, upto, span in _differences(start, end)
        for range_ in cluster.ranges[span.table]
        if (common := span.overlap(range_.span)) is not None
    ]
    nodes = placed(cluster, [span for _, _, span in found], placement, seed=seed)
    return (Piece(span=span, after=after, upto=upto, node=nodes[span]) for after, upto, span in found)


def grouped(found: Iterator[Piece]) -> list[list[Piece]]:
    """Return the pieces by slice: a slice holds those that begin at one timestamp and are read at one node.

    Spans that begin at different timestamps never share a slice: sinks name files by the slice's lower bound, and later
    rows of a key must be in later files.
    """

    def slice_of(piece: Piece) -> tuple[Timestamp, int]:
        return piece.after, piece.node

    return [list(group) for _, group in groupby(sorted(found, key=slice_of), key=slice_of)]


def _differences(start: Frontier, end: Frontier) -> Iterator[tuple[Timestamp, Timestamp, Span]]:
    for span, after in start:
        for other, upto in end:
            common = span.overlap(other)
            if common is not None and upto > after:
                yield after, upto, common


def _full(cluster: Cluster, start: Frontier, end: Frontier, limit: StepLimit) -> Timestamp | None:
    """Return the timestamp at which a step reaches *limit*; None if the step stays below it."""
    found = [
        (timestamp, _size(cluster.tables[span.table], id_, timestamp))
        for after, upto, span in _differences(start, end)
        for timestamp, id_ in cluster.tables[span.table].changes(span, after=after, upto=upto)
    ]
    rows, size = 0, 0
    last: Timestamp | None = None
    for timestamp, together in groupby(sorted(found), key=lambda entry: entry[0]):
        sizes = [row_size for _, row_size in together]
        rows, size = rows + len(sizes), size + sum(sizes)
        if last is not None and (rows > limit.rows or size > limit.bytes):
            return last
        last = timestamp
    return None


def _size(table: Table, id_: int, timestamp: Timestamp) -> int:
    version = table.at(id_, timestamp)
    return 16 + (0 if version is None or version.cells is None else len(str(version.cells)))


def _cut(start: Frontier, end: Frontier, at: Timestamp) -> Frontier:
    following = Frontier.from_json(start.to_json())
    for after, upto, span in _differences(start, end):
        if at > after:
            following.forward(span, min(upto, at))
    return following
