"""What the store knows of each node, for whoever looks from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc_core.store.job_values import JobRecord, NodeRecord, moment

__all__ = ["node_values"]


def node_values(node: NodeRecord, jobs: Sequence[JobRecord], *, now: float) -> dict[str, Any]:
    """Return a node as JSON values; docs/jobs.md explains each."""
    state = "dead" if node.expires <= now else "draining" if node.draining else "alive"
    started, expires = moment(node.started), moment(node.expires)
    assert started is not None
    assert expires is not None
    return {
        "name": node.name,
        "node_id": node.node_id,
        "state": state,
        "locality": str(node.locality) or None,
        "host": node.host,
        "pid": node.pid,
        "version": node.version,
        "jobs": [job.name for job in jobs if job.node_id == node.node_id],
        "max_jobs": node.max_jobs,
        "started": started.isoformat(timespec="seconds"),
        "expires": expires.isoformat(timespec="seconds"),
        "owners": list(node.owners),
        "problems": dict(node.problems),
    }
