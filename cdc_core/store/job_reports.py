"""What the store knows of each job and node, for whoever looks from outside of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_core.store.job_values import REVERTED, RUNNABLE, JobRecord, NodeRecord, moment
from cdc_core.store.liveness import is_alive, lag_s, retried_by
from cdc_core.store.progress import ChangefeedRecord, ProgressStore, SavedStatus
from cdc_core.telemetry.status import Retrying, shown_moment
from cdc_core.telemetry.tally import RETAINED


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node as of `now`, in the database's clock.

    It coordinates `jobs`: it has claimed them. It `aggregates` those of which some of the last slices ran there, as far
    as its address is the host of no other living node.
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
        """Return the report as JSON values; docs/jobs.md explains each."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job as of `now`. Holds no secret. `nodes` are those that are alive at `clock`, the time of the database."""

    job: JobRecord
    known: ChangefeedRecord
    status: SavedStatus | None
    nodes: Sequence[NodeRecord] = ()
    clock: float = 0.0
    now: datetime

    @property
    def state(self) -> str:
        """The state of the job, or `retrying` while it is running and nothing works."""
        return "retrying" if self.job.state == "running" and self.retrying is not None else self.job.state

    @property
    def is_alive(self) -> bool:
        """Whether a run of the newest attempt is alive."""
        status = self.status
        return status is not None and status.epoch == self.job.epoch and is_alive(status, now=self.now)

    @property
    def retrying(self) -> Retrying | None:
        """What a living node retries: also while an attempt begins, whose status is not saved yet."""
        return None if self.job.node is None else retried_by(self.status, now=self.now)

    @property
    def behind_s(self) -> float | None:
        """How far it is behind `now`: see `lag_s`."""
        return lag_s(self.known, self.job.state, now=self.now)

    @property
    def retained_bytes(self) -> float | None:
        """How much log the source keeps for the job, as measured last; None when that is not known, or nothing is."""
        return None if self.job.state in REVERTED else self.known.gauges.get(RETAINED)

    @property
    def running_status(self) -> str:
        """What is done for the job now, or what it waits for; empty while it needs no node."""
        job = self.job
        if job.state not in {"waiting", *RUNNABLE}:
            return ""
        if job.node is None:
            return self._waiting
        if job.state == "reverting":
            return f"node {job.node} drops what it holds at its source"
        if job.state != "running":
            return f"waiting for node {job.node} to stop it"
        if self.retrying is not None:
            return self.retrying.text
        if not self.is_alive:
            return f"starting on node {job.node}"
        mark = self.known.high_water
        return f"running: resolved={mark}" if mark else "running: nothing is resolved yet"

    @property
    def shown_status(self) -> str:
        """`running_status` for people, who see the state beside it, and read the high-water mark as a time."""
        mark, text = self.known.high_water, self.running_status.removeprefix("running: ")
        return text.replace(f"resolved={mark}", f"resolved {shown_moment(mark.to_datetime())}") if mark else text

    @property
    def _waiting(self) -> str:
        job = self.job
        if (node := job.reserved_for(self.nodes, now=self.clock)) is not None:
            return f"waiting for node {node.name} to adopt it"
        matching = f" that matches {job.locality}" if job.locality.tiers else ""
        problems = [f"{node.name}: {node.problems[job.name]}" for node in self.nodes if job.name in node.problems]
        problems += [
            f"{node.name}: it runs no jobs of '{job.owner}'" for node in self.nodes if not node.takes(job.owner)
        ]
        return f"waiting for a node{matching}" + (f"; {'; '.join(problems)}" if problems else "")

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/jobs.md explains each."""
        job, mark = self.job, self.known.high_water
        return {
            "name": job.name,
            "state": self.state,
            "running_status": self.running_status or None,
            "retrying": self.retrying and self.retrying.to_json(),
            "reason": job.reason,
            "node": job.node,
            "owner": job.owner,
            "execution_locality": str(job.locality) or None,
            "created": _text(job.created),
            "started": _text(job.started),
            "finished": _text(job.finished),
            "high_water": str(mark) if mark else None,
            "behind_s": self.behind_s,
            "retained_bytes": self.retained_bytes,
            "retained_at": None if self.retained_bytes is None else _text_of(self.known.measured_at),
            "epoch": job.epoch,
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


def job_reports(store: ProgressStore) -> list[JobReport]:
    """Return a report of every job, by name. Four transactions, however many they are; changes nothing."""
    clock, nodes = _living(store)
    statuses, known = store.statuses.load_all(), {feed.name: feed for feed in store.changefeeds.all()}
    now = datetime.now(UTC)
    return [
        JobReport(job=job, known=known[job.name], status=statuses.get(job.name), nodes=nodes, clock=clock, now=now)
        for job in store.jobs.all()
        if job.name in known
    ]


def job_report(store: ProgressStore, job: JobRecord, known: ChangefeedRecord, *, now: datetime) -> JobReport:
    """Return a report of one job."""
    clock, nodes = _living(store)
    return JobReport(job=job, known=known, status=store.statuses.load(job.name), nodes=nodes, clock=clock, now=now)


def _living(store: ProgressStore) -> tuple[float, list[NodeRecord]]:
    """Return the database's clock, and the nodes that are alive then."""
    clock, nodes = store.nodes.all()
    return clock, [node for node in nodes if node.expires > clock]


def _text(seconds: float | None) -> str | None:
    return _text_of(moment(seconds))


def _text_of(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
