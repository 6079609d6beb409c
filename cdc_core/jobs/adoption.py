"""Which jobs a node adopts, leaves to others, or gives up. Pure: from what it sees to what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cdc_core.store.job_values import RUNNABLE, JobRecord, NodeRecord, Overview, fair_share, matching, unable

_PASSED_POLLS = 2
"""So many polls a node leaves a job to others when it has its share."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a node does after one poll: jobs to adopt, jobs that no live node matches, jobs that waited for one that
    matches and there is one again, and jobs that are to end and that no live node can revert.
    """

    adopt: Sequence[str]
    unmatched: Sequence[str]
    matched: Sequence[str]
    unreverted: Sequence[str]


def choose(
    overview: Overview, me: NodeRecord, *, may_run: Callable[[JobRecord], bool], free_for: Mapping[str, int]
) -> Choices:
    """Return what node *me* does about the jobs that have no live node.

    It adopts as many as make up its fair share of all jobs that match it, and others when they have been free for some
    polls (*free_for*, by name), but runs no more than it may have. *may_run* says whether it has what the job needs; if
    not for good, *me* has it among its problems at the next poll.

    A job that is only to end must not wait for a node that may never come: any node notes that it is paused, and drops
    what it holds at its source when no live node matches it, also one that has as many jobs as it may. When no live
    node at all is able to, that stays there.
    """
    share = fair_share(me, overview.jobs, overview.nodes)
    load = sum(job.node_id == me.node_id for job in overview.jobs)
    adopt: list[str] = []
    unmatched: list[str] = []
    matched = [job.name for job in overview.jobs if job.state == "waiting" and matching(job, overview.nodes)]
    unreverted: list[str] = []
    for job in overview.jobs:
        if job.state not in RUNNABLE or job.node is not None:
            continue
        offered = _offered_to(job, overview)
        if offered not in (None, me.node_id):
            continue
        matches = me.locality.matches(job.locality)
        if job.state == "pause-requested":
            adopt.append(job.name)
        elif job.state == "running" and not matches:
            if not matching(job, overview.nodes):
                unmatched.append(job.name)
        elif job.state != "running" and not (able := _able(overview, me, job)):
            unreverted.append(job.name)
        elif not matches and any(node.locality.matches(job.locality) for node in able):
            continue
        elif me.takes(job.owner) and (job.state != "running" or load + len(adopt) < me.max_jobs) and may_run(job):
            waited = free_for.get(job.name, 0) >= _PASSED_POLLS
            if load + len(adopt) < share or waited or offered == me.node_id:
                adopt.append(job.name)
    return Choices(adopt, unmatched, matched, unreverted)


def successor(overview: Overview, job: JobRecord, *, leaving: NodeRecord) -> NodeRecord | None:
    """Return the node that is to have *job* in place of *leaving*: of those that match it, one with the fewest jobs.

    Other jobs that were offered to a node count as its own.
    """
    load = _loads(overview, but=job.name)
    able = [
        node
        for node in _able(overview, leaving, job)
        if node.node_id != leaving.node_id
        and node.locality.matches(job.locality)
        and (job.state != "running" or load[node.node_id] < node.max_jobs)
    ]
    return min(able, key=lambda node: (load[node.node_id], node.node_id), default=None)


def surplus(overview: Overview, me: NodeRecord, movable: Sequence[str]) -> tuple[str, NodeRecord] | None:
    """Return one of the *movable* jobs of node *me* and the node that is to have it, if *me* has more than its share.

    That node then still has fewer jobs than *me*, so that jobs do not go back and forth.
    """
    load = _loads(overview)
    if load[me.node_id] <= fair_share(me, overview.jobs, overview.nodes):
        return None
    for job in overview.jobs:
        if job.name in movable and job.node_id == me.node_id and job.state == "running":
            other = successor(overview, job, leaving=me)
            if other is not None and load[other.node_id] + 1 < load[me.node_id]:
                return job.name, other
    return None


def _loads(overview: Overview, *, but: str = "") -> Counter[str | None]:
    """Return how many jobs each node has, or is to adopt, *but* the one of that name."""
    return Counter((job.node and job.node_id) or _offered_to(job, overview) for job in overview.jobs if job.name != but)


def _able(overview: Overview, me: NodeRecord, job: JobRecord) -> list[NodeRecord]:
    """Return the nodes that take the job and, as far as is known, have what it needs. Of *me*, this is the newest."""
    known = (me if node.node_id == me.node_id else node for node in overview.nodes)
    return [node for node in known if unable(node, job) is None]


def _offered_to(job: JobRecord, overview: Overview) -> str | None:
    """Return the session of the node that the job, which has none, is reserved for; None when any may have it."""
    node = job.reserved_for(overview.nodes, now=overview.now)
    return None if node is None else node.node_id
