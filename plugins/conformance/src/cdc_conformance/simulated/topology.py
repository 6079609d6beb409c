"""The nodes, the ranges and the transactions of the simulated cluster."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum

from cdc_conformance.simulated.table import END_KEY, Cells
from cdc_core import Locality, Span, Timestamp

__all__ = ["Intent", "Node", "Range", "Row", "Status", "Transaction"]


@dataclass(slots=True, kw_only=True)
class Node:
    """A node. Its clock is `skew_ns` ahead of the true time."""

    id: int
    locality: Locality
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
    timestamps `lag_ns` behind its clock. The other replicas hear of it, each `follower_lag_ns` later.
    """

    span: Span
    replicas: tuple[int, ...]
    leaseholder: int
    closed: Timestamp
    lag_ns: int
    follower_lag_ns: dict[int, int] = field(default_factory=dict)
    """By node; 0 for those that are missing."""
    follower_closed: dict[int, Timestamp] = field(default_factory=dict)
    """By node; nothing is closed on those that are missing."""

    def closed_on(self, node: int) -> Timestamp:
        """Return up to which timestamp the replica on *node* can serve everything that is resolved."""
        return self.closed if node == self.leaseholder else self.follower_closed.get(node, Timestamp())

    def tell_followers(self, living: Container[int]) -> None:
        """Pass the closed timestamp on to the replicas on *living* nodes. It never falls."""
        for node in self.replicas:
            if node in living:
                lag_ns = self.follower_lag_ns.get(node, 0)
                told = Timestamp(max(0, self.closed.wall - lag_ns)) if lag_ns else self.closed
                self.follower_closed[node] = max(self.closed_on(node), told)

    @property
    def end(self) -> bytes:
        return END_KEY if self.span.end is None else self.span.end

    def holds(self, key: bytes) -> bool:
        return self.span.start <= key < self.end


Row = tuple[str, int]
"""Full name of a table, and a row's `id`."""


class Status(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class Intent:
    """A version that is not committed yet, or not known to be. It commits at `timestamp` or later."""

    timestamp: Timestamp
    cells: Cells | None


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A transaction with a coordinator on the node `gateway`.

    `timestamp` is when it would commit now; it only increases. `intents` are the unresolved ones. After a commit some
    may stay for a while: they hold back the resolved timestamp, although readers see the new versions.
    """

    name: str
    gateway: int
    timestamp: Timestamp
    status: Status = Status.OPEN
    intents: dict[Row, Intent] = field(default_factory=dict)
