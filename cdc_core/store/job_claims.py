"""Jobs as nodes see them: which are free, who has claimed which, and how the work on one has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.store.database import Aggregate, overtaken
from cdc_core.store.deletion import forget
from cdc_core.store.events import add_event
from cdc_core.store.job_rows import (
    all_jobs,
    change_job,
    found_job,
    known_job,
    of_job,
    pause_run,
    record_event,
    resume_job,
)
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, DatabaseNow
from cdc_core.store.job_values import (
    FINISHED,
    HANDING_OVER,
    OFFER_S,
    RESTING,
    REVERTED,
    RUNNABLE,
    Adoption,
    Ended,
    JobRecord,
    JobState,
    NodeRecord,
    Overview,
    next_state,
)
from cdc_core.store.jobs import define_job
from cdc_core.store.nodes import alive_sessions
from cdc_core.store.tables import CHANGEFEEDS, update


class JobClaims(Aggregate):
    """The claims of nodes on jobs. A claim that is given up, or whose session has expired, is free for any node."""

    def overview(self) -> Overview:
        """Return all jobs that have not finished, all live nodes, and the database's clock."""
        with self._database.transaction(reading=True) as connection:
            nodes = alive_sessions(connection)
            jobs = all_jobs(connection, nodes, JOBS.c.state.not_in(FINISHED))
            return Overview(now=connection.execute(sa.select(DatabaseNow())).scalar_one(), jobs=jobs, nodes=nodes)

    def adopt(self, name: str, node: NodeRecord) -> Adoption | None:
        """Claim the job for *node* under a new epoch, which fences whoever ran it before.

        None, and nothing is changed, unless the job needs a node, no other live node has claimed it or was offered
        it, and the session of *node* is alive, not draining, and takes jobs of its owner or is only to pause it.
        """
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is None or job.is_run or job.state not in RUNNABLE or job.node is not None:
                return None
            alive = {each.node_id: each for each in alive_sessions(connection)}
            me = alive.get(node.node_id)
            if me is None or me.draining or _is_offered(connection, job, node, alive):
                return None
            if job.state != "pause-requested" and not me.takes(job.owner):
                return None
            connection.execute(
                of_job(name).values(
                    node_id=node.node_id,
                    slot=None,  # a run across the nodes takes one, and this may be none anymore
                    is_clean=False,
                    offered_to=None,
                    offered_until=None,
                    started=sa.func.coalesce(JOBS.c.started, DatabaseNow()),
                )
            )
            raised = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1).returning(CHANGEFEEDS.c.epoch)
            epoch = connection.execute(raised).scalar_one()
            record_event(connection, name, job.state, "adopted", node.name)
            claim = {"epoch": epoch, "failover": not job.clean}
            add_event(connection, "changefeed_adopted", name, node=node.name, **claim)
        return Adoption(name=name, state=job.state, epoch=epoch, clean=job.clean)

    def leave_unreverted(self, name: str, node: NodeRecord, reason: str) -> bool:
        """End the job that is to end, though what it holds at its source stays there; fence whoever ran it before.

        *node* says so with *reason*. False, and nothing is changed, unless the job is to end and no live node has it.
        """
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is None or job.state not in ("cancel-requested", "reverting") or job.node is not None:
                return False
            if job.state == "cancel-requested":
                change_job(connection, job, "reverting", reason=job.reason, node=node.name)
                job = known_job(connection, name)
            gone: dict[str, Any] = {"node_id": None, "offered_to": None}
            change_job(connection, job, "revert-failed", reason=reason, node=node.name, finished=DatabaseNow(), **gone)
            connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))
            return True

    def settle(
        self,
        name: str,
        node: NodeRecord,
        ended: Ended,
        reason: str | None = None,
        *,
        clean: bool = True,
        offer_to: NodeRecord | None = None,
        offer_s: float = OFFER_S,
    ) -> JobState | None:
        """Save how the work of *node* on the job has ended and return the job's state; None if it is not the node's.

        The claim is given up, unless the state is `reverting` now: then the node carries on. *clean*: nothing of
        the run is alive anymore. A job that continues elsewhere is reserved for *offer_to* for some time.
        """
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is None or job.node_id != node.node_id:
                return None
            state = next_state(job.state, ended)
            values: dict[str, Any] = {"is_clean": clean}
            if state != "reverting" or (ended == "stopped" and job.state == "reverting"):
                values["node_id"] = None
            if offer_to is not None and state in RUNNABLE:
                values |= {"offered_to": offer_to.node_id, "offered_until": DatabaseNow() + offer_s}
            if state in FINISHED:
                values["finished"] = DatabaseNow()
            if state == job.state:
                connection.execute(of_job(name).values(**values))
                record_event(connection, name, state, reason or "handed over", node.name)
                to = None if offer_to is None else offer_to.name
                add_event(connection, "changefeed_released", name, node=node.name, message=reason, offered_to=to)
                return state
            if state == "failed" and job.paused_for == "stop":
                state = "paused"
            elif state == "paused" and ended == "paused" and job.paused_for != "stop":
                values["paused_for"] = "error"
            why = reason if state == "succeeded" else reason or job.reason
            change_job(connection, job, state, reason=why, node=node.name, **values)
            return self._rested(connection, name) if state in RESTING else state

    def _rested(self, connection: sa.Connection, name: str) -> JobState:
        """Do what waited until nothing of the job runs: alter its definition, let it run again. Return its state."""
        job = known_job(connection, name)
        if job.pending is not None:
            connection.execute(of_job(name).values(pending=None))
            try:
                define_job(connection, name, job.pending)
            except ConfigError as error:
                reason = f"its new definition cannot be used, so it keeps the previous one: {error}"
                why = "stop" if job.paused_for == "stop" else "error"
                connection.execute(of_job(name).values(paused_for=why, reason=reason))
                record_event(connection, name, job.state, reason, None)
                add_event(connection, "changefeed_paused", name, message=reason)
                return job.state
        if job.paused_for != "restart":
            return job.state
        change_job(connection, job, "running", reason=job.reason, paused_for=None)
        return "running"

    def pause_run(
        self,
        name: str,
        epoch: int,
        error: str | None = None,
        *,
        asked: str | None = None,
        undone: Callable[[], bool] = lambda: False,
    ) -> None:
        """Save that attempt *epoch* of `cdc run` has stopped for a pause.

        It is for an *error*, *asked* for with that reason, or requested in the store; otherwise nothing is changed.
        An error no longer counts when the changefeed was resumed before this: *undone* is called while no
        `resume_run` can begin. Raises: FencedError, also when it has become a job of nodes.
        """
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            error = None if undone() else error
            fenced = connection.execute(update(name).where(CHANGEFEEDS.c.epoch == epoch).values(epoch=epoch))
            if job is None or not job.is_run or not fenced.rowcount:
                raise overtaken(name, epoch)
            if asked is not None and job.state == "running":
                change_job(connection, job, "pause-requested", reason=asked)
                job = replace(job, state="pause-requested", reason=asked)
            elif asked is not None and job.paused_for == "restart":  # it was resumed before that was asked
                job = replace(job, paused_for=None, reason=asked)
            if job.state == "pause-requested" or (error is not None and job.state == "running"):
                pause_run(connection, job, error)

    def resume_run(self, name: str) -> None:
        """Have `cdc run` run the changefeed again; do nothing when it is not paused."""
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is not None and job.is_run:
                resume_job(connection, job)

    def await_match(self, name: str, *, reason: str) -> None:
        """Have the running job wait for a node that matches it: no live one does, and *reason* says which there are.

        Whoever ran it before is fenced.
        """
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is not None and job.state == "running" and job.node is None:
                change_job(connection, job, "waiting", reason=reason, node_id=None)
                connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))

    def end_wait(self, name: str) -> None:
        """Have the job run that waits, because a live node matches it again."""
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is not None and job.state == "waiting":
                change_job(connection, job, "running", reason="a node that matches it has joined")

    def prune(self, *, retention_s: float) -> list[str]:
        """Forget jobs, finished for *retention_s*, that left nothing at their sources; return their names.

        One that is being handed over has not finished: this store may have the only copy of its progress. Of other
        jobs, what is as old as that in their histories is forgotten.
        """
        begin = DatabaseNow() - retention_s
        old = sa.select(JOBS.c.name).where(JOBS.c.state.in_(REVERTED), JOBS.c.finished < begin, ~JOBS.c.is_run)
        with self._database.transaction() as connection:  # locked: one of them may be created again at this moment
            leaves = JOBS.c.finished.is_(None) & JOBS.c.reason.startswith(HANDING_OVER)
            runs = sa.select(JOBS.c.name).where(JOBS.c.is_run | leaves)  # theirs say since when they are paused
            connection.execute(sa.delete(JOB_EVENTS).where(JOB_EVENTS.c.at < begin, JOB_EVENTS.c.name.not_in(runs)))
            names = list(connection.execute(old.with_for_update(skip_locked=True)).scalars())
            for name in names:
                forget(connection, name)
        return names


def _is_offered(connection: sa.Connection, job: JobRecord, node: NodeRecord, alive: Mapping[str, NodeRecord]) -> bool:
    """Return whether the job is reserved for another live node than *node*."""
    if job.offered_to in (None, node.node_id):
        return False
    now = connection.execute(sa.select(DatabaseNow())).scalar_one()
    return job.reserved_for(alive.values(), now=now) is not None
