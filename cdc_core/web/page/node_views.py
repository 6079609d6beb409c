"""The nodes of the store, and which jobs each of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.store.job_values import JobRecord, NodeRecord

__all__ = ["NodeRow", "node_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A session of a node, and the names of the jobs that it runs. `expired_s`: how long ago it died, if it has."""

    node: NodeRecord
    jobs: Sequence[str]
    expired_s: float

    @property
    def state(self) -> str:
        return "dead" if self.expired_s >= 0 else "draining" if self.node.draining else "alive"


def node_rows(nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord], *, now: float) -> list[NodeRow]:
    """Return the rows of *nodes*, the living ones first. *now* is the database's clock."""
    rows = [
        NodeRow(
            node=node,
            jobs=[job.name for job in jobs if job.node_id == node.node_id],
            expired_s=now - node.expires,
        )
        for node in nodes
    ]
    return sorted(rows, key=lambda row: row.expired_s >= 0)
