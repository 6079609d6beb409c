"""The nodes of the simulated cluster, and the ranges of its tables."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_conformance.simulated.keys import END_KEY
from cdc_core import Span, Timestamp

__all__ = ["Node", "Range"]


@dataclass(slots=True, kw_only=True)
class Node:
    """A node. Its clock is `skew_ns` ahead of the true time."""

    id: int
    locality: str
    skew_ns: int
    down_since: int | None = None
    """True time at which it crashed; None while it runs."""

    @property
    def alive(self) -> bool:
        return self.down_since is None

    def clock(self, now: int) -> Timestamp:
        """Return what the node's clock shows at the true time *now*."""
        return Timestamp(now + self.skew_ns)


@dataclass(slots=True, kw_only=True)
class Range:
    """A part of a table's keys, with its replicas. One of them holds the lease and serves all writes.

    No transaction writes at or below `closed` any more, but earlier writes may still be open. The leaseholder closes
    timestamps `lag_ns` behind its clock.
    """

    span: Span
    replicas: tuple[int, ...]
    leaseholder: int
    closed: Timestamp
    lag_ns: int

    @property
    def end(self) -> bytes:
        return END_KEY if self.span.end is None else self.span.end

    def holds(self, key: bytes) -> bool:
        return self.span.start <= key < self.end
