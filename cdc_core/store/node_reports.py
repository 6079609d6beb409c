"""What the store knows of each node, for whoever looks from outside of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_core.store.job_values import NodeRecord
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ProgressStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node as of `now`, in the database's clock.

    It coordinates `jobs`: it has claimed them. It `aggregates` those of which some of the last slices ran there, as far
    as its address is the host of no other live node.
    """

    node: NodeRecord
    jobs: Sequence[str]
    aggregates: Sequence[str]
    now: float

    @property
    def expired_s(self) -> float:
        """How long ago its session has expired; negative while it is alive."""
        return self.now - self.node.expires

    @property
    def state(self) -> str:
        """It is `alive`, `draining` or `dead`."""
        return "dead" if self.expired_s >= 0 else "draining" if self.node.draining else "alive"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/nodes.md explains each."""
        node = self.node
        return {
            "name": node.name,
            "node_id": node.node_id,
            "state": self.state,
            "locality": str(node.locality) or None,
            "host": node.host,
            "pid": node.pid,
            "version": node.version,
            "jobs": list(self.jobs),
            "max_jobs": node.max_jobs,
            "started": _text(node.started),
            "expires": _text(node.expires),
            "owners": list(node.owners),
            "address": node.address or None,
            "leads": node.leads,
            "cores": node.cores,
            "cores_used": node.cores_used,
            "aggregates": list(self.aggregates),
            "problems": dict(node.problems),
        }


def node_reports(store: ProgressStore, *, only: NodeRecord | None = None) -> list[NodeReport]:
    """Return a report of every node, by name, those that died within a day too; or of one, which may have ended."""
    now, nodes = store.nodes.all()
    if only is not None:
        nodes = [next((each for each in nodes if each.node_id == only.node_id), only)]
    jobs, statuses, moment_now = store.jobs.all(), store.statuses.load_all(), datetime.now(UTC)
    slices = {
        name: status.values.get("slices", ()) for name, status in statuses.items() if is_alive(status, now=moment_now)
    }
    at = by_address([node for node in nodes if node.expires > now])
    return [
        NodeReport(
            node=node,
            jobs=[job.name for job in jobs if job.node_id == node.node_id],
            aggregates=[
                job.name
                for job in jobs
                for host in slices.get(job.name, ())
                if host in at and at[host].node_id == node.node_id
            ],
            now=now,
        )
        for node in nodes
    ]


def by_address(nodes: Sequence[NodeRecord]) -> dict[str, NodeRecord]:
    """Return the node at each address; none where there are several, as slices tell only the host they ran on."""
    counts = Counter(node.address for node in nodes)
    return {node.address: node for node in nodes if counts[node.address] == 1}


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
