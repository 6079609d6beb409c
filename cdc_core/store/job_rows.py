"""The rows of jobs, for transactions that look at one and change it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.options import did_you_mean
from cdc_core.store.events import add_event
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, NODES, DatabaseNow
from cdc_core.store.job_values import (
    FINISHED,
    FOLLOWING,
    OFFER_S,
    RESTING,
    RUNNABLE,
    JobRecord,
    JobState,
    NodeRecord,
    fair_share,
    job_record,
    unable,
)
from cdc_core.store.nodes import alive_sessions
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.store.verbs import RULES, UnknownError, Verb, not_a_job, require

_EVENTS: Mapping[JobState, str] = {
    "running": "changefeed_resumed",
    "waiting": "changefeed_unmatched",
    "pause-requested": "pause_requested",
    "paused": "changefeed_paused",
    "cancel-requested": "cancel_requested",
    "reverting": "changefeed_reverting",
    "canceled": "changefeed_canceled",
    "succeeded": "changefeed_succeeded",
    "failed": "changefeed_failed",
    "revert-failed": "changefeed_revert_failed",
}
"""What the event log gets when a job gets into a state."""
_SELECT = sa.select(JOBS, CHANGEFEEDS.c.epoch).join(CHANGEFEEDS, CHANGEFEEDS.c.name == JOBS.c.name, isouter=True)


def of_job(name: str) -> sa.Update:
    return sa.update(JOBS).where(JOBS.c.name == name)


def found_job(connection: sa.Connection, name: str, *, locked: bool = False) -> JobRecord | None:
    """Return the job, also one of `cdc run`.

    *locked*: no other transaction changes it, or extends the session of its node, until the end.
    """
    selected = _SELECT.where(JOBS.c.name == name)
    row = connection.execute(selected.with_for_update(of=JOBS) if locked else selected).one_or_none()
    if row is None:
        return None
    if locked and row.node_id is not None:
        connection.execute(sa.select(NODES.c.node_id).where(NODES.c.node_id == row.node_id).with_for_update())
    nodes = [] if row.node_id is None else alive_sessions(connection)
    return job_record(row, alive={node.node_id: node.name for node in nodes})


def known_job(
    connection: sa.Connection, name: str, *, locked: bool = False, of_runs: bool = False, verb: Verb | None = None
) -> JobRecord:
    """Return the job, of which *verb* is asked; with *of_runs* also one of `cdc run`. Raises: UnknownError."""
    job = found_job(connection, name, locked=locked)
    if job is not None and job.is_run and not of_runs:
        raise not_a_job(name, verb)
    if job is None:
        known = connection.execute(sa.select(JOBS.c.name).where(JOBS.c.is_run.in_({of_runs, False}))).scalars()
        raise UnknownError(f"there is no job '{name}'" + did_you_mean(name, known))
    return job


def asked_job(connection: sa.Connection, name: str, verb: Verb) -> JobRecord:
    """Return the job, locked, if *verb* may be asked of it now. Raises: UnknownError, RefusedError."""
    job = known_job(connection, name, locked=True, of_runs=RULES[verb].of_runs, verb=verb)
    require(job, verb)
    return job


def all_jobs(connection: sa.Connection, nodes: Sequence[NodeRecord], *where: sa.ColumnElement[bool]) -> list[JobRecord]:
    """Return jobs by name, without those of `cdc run`."""
    alive = {node.node_id: node.name for node in nodes}
    rows = connection.execute(_SELECT.where(~JOBS.c.is_run, *where).order_by(JOBS.c.name))
    return [job_record(row, alive=alive) for row in rows]


def change_job(
    connection: sa.Connection,
    job: JobRecord,
    state: JobState,
    *,
    reason: str | None,
    node: str | None = None,
    **values: Any,
) -> None:
    assert state in FOLLOWING[job.state], f"{job.state} -> {state}"
    connection.execute(of_job(job.name).values(state=state, reason=reason, **values))
    record_event(connection, job.name, state, reason, node, at=now_of(job))
    add_event(connection, _EVENTS[state], job.name, node=node, message=reason)


def run_again(connection: sa.Connection, job: JobRecord, reason: str, *, offer_to: str | None = None) -> None:
    """Have the job, which rests, run from its position; see `offer_job` for *offer_to*."""
    change_job(connection, job, "running", reason=reason, paused_for=None)
    offer_job(connection, job.name, offer_to)


def offer_job(connection: sa.Connection, name: str, to: str | None) -> None:
    """Reserve the job, which has no node, for the live node named *to*, if it is to run now.

    Not if that node cannot have it, does not match it, has as many jobs as it may, or more than its fair share. What
    `cdc run` runs is never offered.
    """
    if to is None:
        return
    nodes = alive_sessions(connection)
    node = next((each for each in nodes if each.name == to), None)
    job = known_job(connection, name, of_runs=True)
    if node is None or job.is_run or job.state != "running":
        return
    now = DatabaseNow()
    offered = (JOBS.c.offered_to == node.node_id) & (JOBS.c.offered_until > now)
    its = (JOBS.c.node_id == node.node_id) | offered
    count = sa.select(sa.func.count()).where(its, JOBS.c.state.not_in(FINISHED), JOBS.c.name != name)
    share = fair_share(node, all_jobs(connection, nodes, JOBS.c.state.in_(RUNNABLE)), nodes)
    has_room = connection.execute(count).scalar_one() < min(node.max_jobs, share + 1)
    if has_room and node.locality.matches(job.locality) and unable(node, job) is None:
        connection.execute(of_job(name).values(offered_to=node.node_id, offered_until=now + OFFER_S))


def resume_job(
    connection: sa.Connection, job: JobRecord, reason: str = "resumed", *, offer_to: str | None = None
) -> None:
    """Have the job run from its position: at once, or after the requested pause; see `offer_job` for *offer_to*."""
    if job.state in RESTING:
        run_again(connection, job, reason, offer_to=offer_to)
    elif job.state == "pause-requested" and job.paused_for != "restart":
        connection.execute(of_job(job.name).values(paused_for="restart"))
        record_event(connection, job.name, job.state, reason, None, at=now_of(job))
        add_event(connection, "resume_requested", job.name, message=reason)


def pause_run(connection: sa.Connection, job: JobRecord, error: str | None = None) -> None:
    """Save that the run of *job* has stopped, for an *error*, or as was requested; it runs again if it was resumed."""
    change_job(connection, job, "paused", reason=error or job.reason, paused_for="error" if error else None)
    if error is None and job.paused_for == "restart":
        run_again(connection, known_job(connection, job.name, of_runs=True), "resumed")


def record_event(
    connection: sa.Connection,
    name: str,
    state: JobState,
    reason: str | None,
    node: str | None,
    *,
    at: float | DatabaseNow | None = None,
) -> None:
    """Add to the history of the job, which ends with it. The event log is another: see `add_event`."""
    values = {"name": name, "at": DatabaseNow() if at is None else at, "state": state, "reason": reason, "node": node}
    connection.execute(sa.insert(JOB_EVENTS).values(**values))


def now_of(job: JobRecord) -> float | DatabaseNow:
    """Return the time of a change: of the database, which only those that nodes can use tell."""
    return time.time() if job.is_run else DatabaseNow()
