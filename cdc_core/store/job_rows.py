"""The rows of jobs, for transactions that look at one and change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.options import did_you_mean
from cdc_core.store.events import add_event
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, NODES, DatabaseNow
from cdc_core.store.job_values import FOLLOWING, JobRecord, JobState, NodeRecord, job_record
from cdc_core.store.nodes import alive_sessions
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.verbs import UnknownError, Verb, require

__all__ = ["all_jobs", "asked_job", "change_job", "found_job", "known_job", "of_job", "record_event", "run_again"]

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
    """Return the job. *locked*: no other transaction changes it, or extends the session of its node, until the end."""
    selected = _SELECT.where(JOBS.c.name == name)
    row = connection.execute(selected.with_for_update(of=JOBS) if locked else selected).one_or_none()
    if row is None:
        return None
    if locked and row.node_id is not None:
        connection.execute(sa.select(NODES.c.node_id).where(NODES.c.node_id == row.node_id).with_for_update())
    return job_record(row, alive={node.node_id: node.name for node in alive_sessions(connection)})


def known_job(connection: sa.Connection, name: str, *, locked: bool = False) -> JobRecord:
    job = found_job(connection, name, locked=locked)
    if job is None:
        known = connection.execute(sa.select(JOBS.c.name)).scalars()
        raise UnknownError(f"there is no job '{name}'" + did_you_mean(name, known))
    return job


def asked_job(connection: sa.Connection, name: str, verb: Verb) -> JobRecord:
    """Return the job, locked, if *verb* may be asked of it now. Raises: UnknownError, RefusedError."""
    job = known_job(connection, name, locked=True)
    require(job, verb)
    return job


def all_jobs(connection: sa.Connection, nodes: Sequence[NodeRecord], *where: sa.ColumnElement[bool]) -> list[JobRecord]:
    alive = {node.node_id: node.name for node in nodes}
    rows = connection.execute(_SELECT.where(*where).order_by(JOBS.c.name))
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
    record_event(connection, job.name, state, reason, node)
    add_event(connection, _EVENTS[state], job.name, node=node, message=reason)


def run_again(connection: sa.Connection, job: JobRecord, reason: str) -> None:
    """Have the job, which rests, run from its position."""
    change_job(connection, job, "running", reason=reason, paused_for=None)
    connection.execute(update(job.name).values(paused=None))


def record_event(connection: sa.Connection, name: str, state: JobState, reason: str | None, node: str | None) -> None:
    """Add to the history of the job, which ends with it. The event log is another: see `add_event`."""
    connection.execute(sa.insert(JOB_EVENTS).values(name=name, at=DatabaseNow(), state=state, reason=reason, node=node))
