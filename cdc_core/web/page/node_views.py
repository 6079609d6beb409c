"""The nodes of the store, and which jobs each of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.store.job_values import JobRecord, NodeRecord, moment
from cdc_core.web.page.states import Tone
from cdc_core.web.page.texts import age_text, moment_text

__all__ = ["NodeRow", "Problem", "node_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A job that a node cannot run, and why."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A session of a node. `tiers` are those of its locality, each as key and value."""

    name: str
    state: str
    tone: Tone
    tiers: Sequence[str]
    host: str
    process: str
    version: str
    jobs: Sequence[str]
    load: str
    owners: str
    started: str
    seen: str
    problems: Sequence[Problem]
    may_drain: bool


def node_rows(nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord], *, now: float) -> list[NodeRow]:
    """Return the rows of *nodes*, the living ones first. *now* is the database's clock."""
    rows = [(node.expires <= now, _row(node, jobs, now=now)) for node in nodes]
    return [row for _, row in sorted(rows, key=lambda entry: entry[0])]


def _row(node: NodeRecord, jobs: Sequence[JobRecord], *, now: float) -> NodeRow:
    dead = node.expires <= now
    mine = [job.name for job in jobs if job.node_id == node.node_id]
    state = "dead" if dead else "draining" if node.draining else "alive"
    tones: dict[str, Tone] = {"dead": "bad", "draining": "busy", "alive": "good"}
    return NodeRow(
        name=node.name,
        state=state,
        tone=tones[state],
        tiers=str(node.locality).split(",") if node.locality.tiers else (),
        host=node.host,
        process=str(node.pid),
        version=node.version,
        jobs=mine,
        load=f"{len(mine)} of {node.max_jobs}",
        owners=", ".join(node.owners) or "everybody",
        started=moment_text(moment(node.started)),
        seen=f"expired {age_text(now - node.expires)} ago" if dead else "alive",
        problems=[Problem(job=job, reason=reason) for job, reason in node.problems.items()],
        may_drain=state == "alive",
    )
