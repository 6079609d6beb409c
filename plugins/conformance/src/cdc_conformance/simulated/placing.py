"""Which node of the simulated cluster a span is read at, and which replica serves a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.topology import Range
from cdc_core import Locality, Place, PlacementRules, Replica, ReplicatedSpan, Span, Timestamp, closest_replica

__all__ = ["placed", "serving_nodes"]


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
