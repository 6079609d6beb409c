"""What the store knows of each job, for whoever looks from outside of its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_core.store.job_values import FINISHED, RUNNABLE, JobRecord, NodeRecord, moment
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ChangefeedRecord, ProgressStore, SavedStatus

__all__ = ["JobReport", "job_report", "job_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job as of `now`. Holds no secret. `nodes` are those that are alive."""

    job: JobRecord
    known: ChangefeedRecord
    status: SavedStatus | None
    nodes: Sequence[NodeRecord]
    now: datetime

    @property
    def behind_s(self) -> float | None:
        """How far the high-water mark is behind `now`; None while there is none, and after the end."""
        mark = self.known.high_water
        if not mark or self.job.state in FINISHED:
            return None
        return round(max(0.0, self.now.timestamp() - mark.wall / 1e9), 3)

    @property
    def running_status(self) -> str:
        """What is done for the job now, or what it waits for; empty while it needs no node."""
        job, status = self.job, self.status
        if job.state not in {"waiting", *RUNNABLE}:
            return ""
        if job.node is None:
            return self._waiting
        if job.state == "reverting":
            return f"node {job.node} drops what it holds at its source"
        if job.state != "running":
            return f"waiting for node {job.node} to stop it"
        if status is None or status.epoch != job.epoch or not is_alive(status, now=self.now):  # an earlier attempt's
            return f"starting on node {job.node}"
        mark, error = self.known.high_water, status.values.get("waiting_for")
        text = f"running: resolved={mark}" if mark else "running: nothing is resolved yet"
        return text if error is None else f"{text}; retrying: {error}"

    @property
    def _waiting(self) -> str:
        job = self.job
        for node in self.nodes:
            if node.node_id == job.offered_to:
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
            "state": job.state,
            "running_status": self.running_status or None,
            "reason": job.reason,
            "node": job.node,
            "owner": job.owner,
            "execution_locality": str(job.locality) or None,
            "created": _text(job.created),
            "started": _text(job.started),
            "finished": _text(job.finished),
            "high_water": str(mark) if mark else None,
            "behind_s": self.behind_s,
            "epoch": job.epoch,
        }


def job_reports(store: ProgressStore) -> list[JobReport]:
    """Return a report of every job, by name. Four transactions, however many they are; changes nothing."""
    living = store.living_nodes()
    statuses, known = store.statuses(), {feed.name: feed for feed in store.list()}
    now = datetime.now(UTC)
    return [
        JobReport(job=job, known=known[job.name], status=statuses.get(job.name), nodes=living, now=now)
        for job in store.jobs()
        if job.name in known
    ]


def job_report(store: ProgressStore, job: JobRecord, known: ChangefeedRecord, *, now: datetime) -> JobReport:
    """Return a report of one job."""
    return JobReport(job=job, known=known, status=store.status(job.name), nodes=store.living_nodes(), now=now)


def _text(seconds: float | None) -> str | None:
    at = moment(seconds)
    return None if at is None else at.isoformat(timespec="seconds")
