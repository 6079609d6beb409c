"""Which jobs a node adopts, and which it leaves or offers to others. Pure: from what it sees to what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from cdc_core.store.job_values import RUNNABLE, JobRecord, NodeRecord, Overview

__all__ = ["Choices", "choose", "successor"]

_PATIENCE = 2
"""So many polls a node leaves a job to others when it has its share."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a node does after one poll: jobs to adopt, jobs to offer and to whom, jobs that no living node matches.

    `matched` are jobs that waited for a node that matches, and there is one again.
    """

    adopt: Sequence[str]
    offer: Sequence[tuple[str, NodeRecord]]
    unmatched: Sequence[str]
    matched: Sequence[str]


def choose(
    overview: Overview, me: NodeRecord, *, may_run: Callable[[JobRecord], bool], free_for: Mapping[str, int]
) -> Choices:
    """Return what node *me* does about the jobs that have no living node.

    It adopts as many as make up its fair share of all jobs that match it, and others when they have been free for some
    polls (*free_for*, by name), but runs no more than it may have. *may_run* says whether it has what the job needs.

    A job that is only to end must not wait for a node that may never come: any node notes that it is paused, and drops
    what it holds at its source when no living node matches it, also one that has as many jobs as it may.
    """
    share = _share(overview, me)
    load = sum(job.node_id == me.node_id for job in overview.jobs)
    adopt: list[str] = []
    offer: list[tuple[str, NodeRecord]] = []
    unmatched: list[str] = []
    matched = [job.name for job in overview.jobs if job.waiting_since is not None and _matching(overview, job)]
    for job in overview.jobs:
        if job.state not in RUNNABLE or job.node is not None or _is_reserved(job, me, overview):
            continue
        if job.state == "pause-requested":
            adopt.append(job.name)
        elif not me.locality.matches(job.locality) and (job.state == "running" or _matching(overview, job)):
            other = successor(overview, job, leaving=me)
            if other is not None:
                offer.append((job.name, other))
            elif not _matching(overview, job):
                unmatched.append(job.name)
        elif (job.state != "running" or load + len(adopt) < me.max_jobs) and may_run(job):
            waited = free_for.get(job.name, 0) >= _PATIENCE
            if load + len(adopt) < share or waited or job.offered_to == me.node_id:
                adopt.append(job.name)
    return Choices(adopt, offer, unmatched, matched)


def successor(overview: Overview, job: JobRecord, *, leaving: NodeRecord) -> NodeRecord | None:
    """Return the node that is to have *job* in place of *leaving*: of those that match it, one with the fewest jobs.

    Other jobs that were offered to a node count as its own.
    """
    load = Counter(each.node_id or each.offered_to for each in overview.jobs if each.name != job.name)
    able = [
        node
        for node in _matching(overview, job)
        if node.node_id != leaving.node_id
        and job.name not in node.problems
        and (job.state != "running" or load[node.node_id] < node.max_jobs)
    ]
    return min(able, key=lambda node: (load[node.node_id], node.node_id), default=None)


def _share(overview: Overview, me: NodeRecord) -> int:
    """Return the fair share of *me*: its part of every job that needs a node and that it matches."""
    parts = (
        len(_matching(overview, job))
        for job in overview.jobs
        if job.state in RUNNABLE and me.locality.matches(job.locality)
    )
    return ceil(sum(1 / count for count in parts if count) - 1e-9)


def _matching(overview: Overview, job: JobRecord) -> list[NodeRecord]:
    return [node for node in overview.nodes if node.locality.matches(job.locality) and not node.draining]


def _is_reserved(job: JobRecord, me: NodeRecord, overview: Overview) -> bool:
    """Return whether the job was offered to another living node, and the offer stands."""
    if job.offered_to in (None, me.node_id) or job.offered_until is None or job.offered_until <= overview.now:
        return False
    return any(node.node_id == job.offered_to for node in overview.nodes)
