"""The values of jobs and nodes, and which state of a job follows which."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Any, Literal, get_args

from cdc_core.locality import Locality
from cdc_core.store.values import record_of

JobState = Literal[
    "running",
    "waiting",
    "pause-requested",
    "paused",
    "cancel-requested",
    "reverting",
    "canceled",
    "succeeded",
    "failed",
    "revert-failed",
]
"""A job that waits runs again when a node joins that matches it. One that is reverting was canceled; a node drops what
it holds at its source.
"""
FOLLOWING: Mapping[JobState, frozenset[JobState]] = {
    "running": frozenset({"waiting", "pause-requested", "paused", "failed", "cancel-requested", "succeeded"}),
    "waiting": frozenset({"running", "paused", "cancel-requested"}),
    "pause-requested": frozenset({"paused", "failed", "cancel-requested", "succeeded"}),
    "paused": frozenset({"running", "cancel-requested"}),
    "failed": frozenset({"running", "paused", "cancel-requested"}),
    "cancel-requested": frozenset({"reverting", "succeeded"}),
    "reverting": frozenset({"canceled", "revert-failed"}),
    "revert-failed": frozenset({"cancel-requested"}),
    "canceled": frozenset(),
    "succeeded": frozenset(),
}
"""The states that may follow each state."""
RUNNABLE: frozenset[JobState] = frozenset({"running", "pause-requested", "cancel-requested", "reverting"})
"""The states in which a job needs a node."""
RESTING: frozenset[JobState] = frozenset({"paused", "failed"})
"""The states in which nothing of a job runs, and it continues from its position when it is resumed."""
FINISHED: frozenset[JobState] = frozenset({"canceled", "succeeded", "revert-failed"})
REVERTED: frozenset[JobState] = FINISHED - {"revert-failed"}
"""The states in which a job holds nothing at its source."""
assert FOLLOWING.keys() == set(get_args(JobState))
HANDING_OVER = "its progress is being handed over to"
"""How the reason of a canceled job begins that has not finished: no other store is known to have its progress yet."""
HANDED_OVER = "its progress was handed over to"
"""How the reason of a canceled job begins whose progress a job of another store has."""
NOT_NOW = "not now: "
"""How a node's problem with a job begins that it has run and will try again: it must not count as unable to drop it."""
OFFER_S = 10.0
"""How long a job is reserved for the node that it is offered to: several of its polls."""
Ended = Literal["stopped", "succeeded", "failed", "paused", "reverted", "not reverted"]
"""How a node's work on a job has ended: a run that stopped, delivered everything, failed, or is to be paused for its
error; what the job held at its source was dropped, or could not be."""

PausedFor = Literal["stop", "restart", "error"]
"""Why a job is paused, or is to be, if not just because someone wants that: to be stopped, as Kafka Connect says; to
run again at once; or because something is wrong."""


def next_state(state: JobState, ended: Ended) -> JobState:
    """Return the state of a job in *state* after a node's work on it."""
    if ended == "reverted":
        return "canceled"
    if ended == "not reverted":
        return "revert-failed"
    if state == "reverting":
        return state
    if ended == "succeeded":
        return "succeeded"
    if state == "cancel-requested":
        return "reverting"
    if ended == "failed":
        return "failed"
    return "paused" if ended == "paused" or state == "pause-requested" else state


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A definition, as of `ResolvedChangefeed`, that a job is to have, with what follows from it.

    `initial_scans` is as in `choose_initial_scans`; `why` says in the history what has changed.
    """

    definition: Mapping[str, Any]
    locality: Locality
    initial_scans: Mapping[str, bool]
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, for `from_json`."""
        return {
            "definition": dict(self.definition),
            "locality": str(self.locality),
            "initial_scans": dict(self.initial_scans),
            "why": self.why,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Pending:
        return cls(**{**value, "locality": Locality.parse(value["locality"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job in the store. Times are by the database's clock, in seconds since 1970. Contains no secret.

    `node_id` is the session of the node that has claimed the job, dead or alive. `node` is the node's name, if it is
    alive. With `is_run`, the changefeed belongs to `cdc run`: no node claims it, and it stays `running` even while no
    run is alive.
    """

    name: str
    state: JobState
    owner: str
    created: float
    reason: str | None = None
    locality: Locality = Locality()
    node_id: str | None = None
    node: str | None = None
    clean: bool = True
    offered_to: str | None = None
    offered_until: float | None = None
    schedule: str | None = None
    started: float | None = None
    finished: float | None = None
    paused_for: PausedFor | None = None
    pending: Pending | None = field(default=None, repr=False)
    is_run: bool = False
    epoch: int = 0

    @property
    def rests_for_error(self) -> bool:
        """Whether it rests because something is wrong, and not because someone wants that."""
        return self.state == "failed" or (self.state == "paused" and self.paused_for == "error")

    @property
    def is_leaving(self) -> bool:
        """Whether it is being handed over: its progress may be nowhere but here, and the reason says what to repeat."""
        return self.finished is None and (self.reason or "").startswith(HANDING_OVER)

    @property
    def has_left(self) -> bool:
        """Whether a job of another store has its progress, or is to have it."""
        return self.is_leaving or (self.reason or "").startswith(HANDED_OVER)

    def reserved_for(self, nodes: Iterable[NodeRecord], *, now: float) -> NodeRecord | None:
        """Return the one of the live *nodes* that the job, which has none, was offered to; None when any may have it.

        An offer ends in time, and when that node does not match the job or cannot have it, as far as is known.
        """
        node = next((each for each in nodes if each.node_id == self.offered_to), None)
        if node is None or self.offered_until is None or self.offered_until <= now:
            return None
        return node if node.locality.matches(self.locality) and unable(node, self) is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A change of a job's state: when in the database's clock, why, and which node made it, if one did."""

    at: float
    state: JobState
    reason: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A session of a node. `expires` and `started` are in the database's clock.

    `problems`: jobs that it cannot run, or failed to run a moment ago. `owners`: it takes only jobs of these, unless
    there are none.
    """

    node_id: str
    name: str
    locality: Locality
    host: str
    pid: int
    directory: str
    version: str
    max_jobs: int
    started: float = 0.0
    expires: float = 0.0
    draining: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)
    owners: Sequence[str] = ()
    cores: int = 0
    """How many of its cores jobs of all nodes may use."""
    master: str = ""
    """Where its master listens when it leads the cluster, as `address:port`; empty without cores."""
    cores_used: int = 0
    """How many the executors here have together. Jobs share cores: it may be more than there are."""
    leads: bool = field(default=False, compare=False)
    """Whether it is alive and the cluster's master runs there: of nodes that the store lists, otherwise not known."""

    @property
    def address(self) -> str:
        """Where others reach it, and the name of its executors' host; empty without cores."""
        return self.master.rpartition(":")[0]

    def problem_with(self, job: str) -> str:
        """Return the problem that it has with *job*, one of its `problems`, as what to say after its name."""
        problem = self.problems[job]
        if problem.startswith(NOT_NOW):
            return f"failed to run job '{job}' and will try again: {problem.removeprefix(NOT_NOW)}"
        return f"cannot run job '{job}': {problem}"

    def takes(self, owner: str) -> bool:
        """Return whether the node runs jobs of *owner*."""
        return not self.owners or owner in self.owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a node sees at a poll: jobs that have not finished, by name; sessions that have not expired; the time."""

    now: float
    jobs: Sequence[JobRecord]
    nodes: Sequence[NodeRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A job that a node has claimed under `epoch`. `clean`: whoever ran it before has settled it."""

    name: str
    state: JobState
    epoch: int
    clean: bool


def unable(node: NodeRecord, job: JobRecord) -> str | None:
    """Return why *node* cannot have *job*, wherever it is, as far as is known; None if it can."""
    if node.draining:
        return "it drains"
    if not node.takes(job.owner):
        return f"it runs no jobs of '{job.owner}'"
    problem = node.problems.get(job.name)
    return None if problem is None or problem.startswith(NOT_NOW) else problem


def matching(job: JobRecord, nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Return those of the live *nodes* that match the job and do not drain."""
    return [node for node in nodes if node.locality.matches(job.locality) and not node.draining]


def fair_share(me: NodeRecord, jobs: Iterable[JobRecord], nodes: Sequence[NodeRecord]) -> int:
    """Return how many of the *jobs* are for *me*: its part of every one that needs a node and that it matches."""
    parts = (
        sum(node.takes(job.owner) for node in matching(job, nodes))
        for job in jobs
        if job.state in RUNNABLE and me.locality.matches(job.locality) and me.takes(job.owner)
    )
    return ceil(sum(1 / count for count in parts if count) - 1e-9)


def job_record(row: Any, *, alive: Mapping[str, str]) -> JobRecord:
    """Return a row of the jobs' table, with the changefeed's epoch, as a value. *alive*: names by session."""
    return record_of(
        JobRecord,
        row,
        locality=Locality.parse(row.locality),
        node=alive.get(row.node_id or ""),
        clean=row.is_clean,
        pending=None if row.pending is None else Pending.from_json(json.loads(row.pending)),
        epoch=row.epoch or 0,
    )


def node_record(row: Any) -> NodeRecord:
    """Return a row of the nodes' table as a value."""
    return record_of(
        NodeRecord,
        row,
        locality=Locality.parse(row.locality),
        problems=json.loads(row.problems),
        owners=tuple(json.loads(row.owners)),
        draining=row.is_draining,
    )


def moment(seconds: float | None) -> datetime | None:
    """Return a time of these tables as a moment."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
