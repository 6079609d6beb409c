"""Schema boundaries of the simulated database: the points at which a watched table gets another shape."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_conformance.simulated.cluster import Cluster
from cdc_core import Frontier, SchemaChange, Span, Timestamp

__all__ = ["Boundary", "next_boundary", "reached_boundary"]


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
