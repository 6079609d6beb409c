"""Which node of the simulated cluster a span is read at, which replica serves a reader, and the journal of reads."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.state import Range
from cdc_core import Locality, Place, PlacementRules, Replica, ReplicatedSpan, Span, Timestamp, closest_replica

_NAME = "served"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A reader on the executor `executor` of `host`, at `locality`, was served a span by `node`.

    Rows later than `after` and up to `upto`; of a scan, `after` is None and the rows are as of `upto`. `wanted` is
    where the planner placed the slice.
    """

    feed: str
    executor: str
    host: str
    locality: Locality
    wanted: Locality
    span: Span
    after: Timestamp | None
    upto: Timestamp
    node: int
    node_locality: Locality


def record_served(directory: Path, entry: Served) -> None:
    """Append *entry* in one write, so that several processes may."""
    file = os.open(directory / _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, pickle.dumps(entry))
    finally:
        os.close(file)


def served(directory: Path) -> Iterator[Served]:
    """Yield the entries of *directory* in the order of their writing."""
    path = directory / _NAME
    if path.exists():
        with path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def placed(cluster: Cluster, spans: Sequence[Span], rules: PlacementRules, *, seed: int) -> dict[Span, int]:
    """Return the node at which each of *spans* is read; none of them is in two ranges.

    Nodes that are down are left out as long as one runs. A range without a replica that runs is placed as if all did.
    """
    found = [
        ReplicatedSpan(span=span, replicas=_replicas(cluster, cluster.range_of(span.table, span.start)))
        for span in spans
    ]
    nodes = [
        Place(name=str(node.id), locality=node.locality)
        for node in [node for node in cluster.nodes.values() if node.alive] or cluster.nodes.values()
    ]
    shares = rules.assign(found, nodes, seed=seed)
    return {each.span: int(name) for name, share in shares.items() for each in share}


def serving_nodes(cluster: Cluster, span: Span, upto: Timestamp, locality: Locality) -> Iterator[tuple[Span, int]]:
    """Yield the parts of *span* with the nodes that serve a reader at *locality* everything up to *upto*.

    That is the closest running replica that has closed *upto*. Where there is none, the leaseholder serves: a reader
    waits for it, and the time that passes then is not part of the simulation.
    """
    for range_ in cluster.ranges[span.table]:
        common = span.overlap(range_.span)
        if common is not None:
            replicas = _replicas(cluster, range_)
            chosen = closest_replica(replicas, locality, upto=upto)
            yield common, range_.leaseholder if chosen is None else int(chosen.node)


def _replicas(cluster: Cluster, range_: Range) -> tuple[Replica, ...]:
    """Return the replicas that run; all of them when none does."""
    living = [node for node in range_.replicas if cluster.nodes[node].alive]
    return tuple(
        Replica(
            node=str(node),
            locality=cluster.nodes[node].locality,
            leaseholder=node == range_.leaseholder,
            closed=range_.closed_on(node),
        )
        for node in living or range_.replicas
    )
