"""Changefeeds as jobs: their states, who runs them, and what people and nodes do to them. Each in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.options import did_you_mean
from cdc_core.store.changefeeds import Changefeeds, require_no_job
from cdc_core.store.forgetting import forget
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, NODES, DatabaseNow
from cdc_core.store.job_values import (
    FINISHED,
    FOLLOWING,
    REVERTED,
    RUNNABLE,
    Adoption,
    Ended,
    JobEvent,
    JobRecord,
    JobState,
    NodeRecord,
    Overview,
    job_event,
    job_record,
    next_state,
)
from cdc_core.store.nodes import alive_sessions, require_match
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import dump

__all__ = ["Jobs"]

_SELECT = sa.select(JOBS, CHANGEFEEDS.c.epoch).join(CHANGEFEEDS, CHANGEFEEDS.c.name == JOBS.c.name, isouter=True)


class Jobs(Changefeeds):
    """Every job, from its creation until it has been finished for as long as the nodes keep it."""

    # What people do.

    def create_job(
        self, name: str, definition: Mapping[str, Any], *, owner: str, locality: Locality, schedule: str | None = None
    ) -> JobRecord:
        """Make the changefeed a job, which a node will run. *definition* is `ResolvedChangefeed.definition`.

        What an earlier, finished job of this name has left in the store is forgotten; a changefeed that a `cdc run` has
        left is continued. Raises: ConfigError when it is a job already, or one whose source still holds something,
        or no living node matches *locality*.
        """

        def create() -> JobRecord:
            with self._transaction() as connection:
                return self._create_job(connection, name, definition, owner=owner, locality=locality, schedule=schedule)

        return self._once_more(create)

    def pause_job(self, name: str, reason: str) -> JobRecord:
        """Have the job paused, at once if no living node runs it. Raises: ConfigError when it is not running."""
        with self._transaction() as connection:
            job = _known(connection, name, locked=True)
            if job.state != "running":
                raise ConfigError(f"job '{name}' is {job.state}; only a running job can be paused")
            if job.node is not None:
                _change(connection, job, "pause-requested", reason=reason)
            else:  # its node is dead, or frozen: fence it
                _change(connection, job, "paused", reason=reason, node_id=None, waiting_since=None)
                connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))
            return _known(connection, name)

    def resume_job(self, name: str) -> JobRecord:
        """Let a paused job run again. Raises: ConfigError when it is not paused, or no living node matches it."""
        with self._transaction() as connection:
            job = _known(connection, name, locked=True)
            if job.state != "paused":
                hint = "; wait until it is paused" if job.state == "pause-requested" else ""
                raise ConfigError(f"job '{name}' is {job.state}; only a paused job can be resumed{hint}")
            require_match(name, job.locality, alive_sessions(connection))
            _change(connection, job, "running", reason="resumed", waiting_since=None)
            connection.execute(update(name).values(paused=None))
            return _known(connection, name)

    def cancel_job(self, name: str, reason: str) -> JobRecord:
        """Have the job end for good; a node drops what it holds at its source. Raises: ConfigError after its end."""
        with self._transaction() as connection:
            job = _known(connection, name, locked=True)
            if "cancel-requested" not in FOLLOWING[job.state]:
                raise ConfigError(f"job '{name}' is {job.state} and cannot be cancelled")
            _change(connection, job, "cancel-requested", reason=reason, finished=None, waiting_since=None)
            return _known(connection, name)

    def redefine_job(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        before: Mapping[str, Any],
        locality: Locality,
        initial_scans: Mapping[str, bool],
        why: str,
    ) -> JobRecord:
        """Give the paused job another definition; *why* says in the history what has changed. Raises: ConfigError.

        *before* is the definition that was changed, and *initial_scans* is as in `choose_initial_scans`.
        """
        with self._transaction() as connection:
            job = _known(connection, name, locked=True)
            if job.state != "paused":
                raise ConfigError(f"job '{name}' is {job.state}; pause it first: `cdc pause {name}`")
            stored = sa.select(CHANGEFEEDS.c.definition).where(CHANGEFEEDS.c.name == name)
            if connection.execute(stored).scalar_one() != dump(before):
                raise ConfigError(f"job '{name}' has been altered meanwhile; look at it, and repeat the command")
            self._register(connection, name, definition, changes_tables=True)
            connection.execute(update(name).values(initial_scans=dump(initial_scans) if initial_scans else None))
            connection.execute(_of(name).values(locality=str(locality)))
            _record(connection, name, "paused", why, None)
            return _known(connection, name)

    def own_job(self, name: str, owner: str) -> JobRecord:
        """Give the job another owner. Raises: ConfigError when it is unknown."""
        with self._transaction() as connection:
            job = _known(connection, name, locked=True)
            connection.execute(_of(name).values(owner=owner))
            _record(connection, name, job.state, f"the owner is {owner} now, and was {job.owner}", None)
            return _known(connection, name)

    def require_no_job(self, name: str) -> None:
        """Return when the changefeed is not a job. Raises: ConfigError, as `register` does then."""
        with self._transaction(reading=True) as connection:
            require_no_job(connection, name)

    def find_job(self, name: str) -> JobRecord | None:
        """Return the job, None when the changefeed is not one."""
        with self._transaction(reading=True) as connection:
            return _found(connection, name)

    def jobs(self) -> list[JobRecord]:
        """Return every job by name, finished ones too."""
        with self._transaction(reading=True) as connection:
            return _all(connection, alive_sessions(connection))

    def job_events(self, name: str) -> list[JobEvent]:
        """Return the changes of the job's state, the first one first."""
        of_job = sa.select(JOB_EVENTS).where(JOB_EVENTS.c.name == name).order_by(JOB_EVENTS.c.id)
        with self._transaction(reading=True) as connection:
            return [job_event(row) for row in connection.execute(of_job)]

    # What nodes do.

    def overview(self) -> Overview:
        """Return all jobs that have not finished, all living nodes, and the database's clock."""
        with self._transaction(reading=True) as connection:
            nodes = alive_sessions(connection)
            jobs = _all(connection, nodes, JOBS.c.state.not_in(FINISHED))
            return Overview(now=connection.execute(sa.select(DatabaseNow())).scalar_one(), jobs=jobs, nodes=nodes)

    def adopt(self, name: str, node: NodeRecord) -> Adoption | None:
        """Claim the job for *node* under a new epoch, which fences whoever ran it before.

        None, and nothing is changed, unless the job needs a node, no other living node has claimed it or was offered
        it, and the session of *node* is alive, not draining, and takes jobs of its owner or is only to pause it.
        """
        with self._transaction() as connection:
            job = _found(connection, name, locked=True)
            if job is None or job.state not in RUNNABLE or job.node is not None:
                return None
            alive = {each.node_id: each for each in alive_sessions(connection)}
            me = alive.get(node.node_id)
            if me is None or me.draining or _is_offered(connection, job, node, alive):
                return None
            if job.state != "pause-requested" and not me.takes(job.owner):
                return None
            connection.execute(
                _of(name).values(
                    node_id=node.node_id,
                    clean=False,
                    offered_to=None,
                    offered_until=None,
                    waiting_since=None,
                    started=sa.func.coalesce(JOBS.c.started, DatabaseNow()),
                )
            )
            raised = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1).returning(CHANGEFEEDS.c.epoch)
            epoch = connection.execute(raised).scalar_one()
            _record(connection, name, job.state, "adopted", node.name)
        return Adoption(name=name, state=job.state, ends_as=job.ends_as, epoch=epoch, clean=job.clean)

    def leave_unreverted(self, name: str, node: NodeRecord, reason: str) -> bool:
        """End the job that is to end, though what it holds at its source stays there; fence whoever ran it before.

        *node* says so with *reason*. False, and nothing is changed, unless the job is to end and no living node has it.
        """
        with self._transaction() as connection:
            job = _found(connection, name, locked=True)
            if job is None or job.state not in ("cancel-requested", "reverting") or job.node is not None:
                return False
            if job.state == "cancel-requested":
                _change(connection, job, "reverting", reason=job.reason, node=node.name)
                job = _known(connection, name)
            gone: dict[str, Any] = {"node_id": None, "ends_as": None, "offered_to": None, "waiting_since": None}
            _change(connection, job, "revert-failed", reason=reason, node=node.name, finished=DatabaseNow(), **gone)
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
        offer_s: float = 0.0,
    ) -> JobState | None:
        """Save how the work of *node* on the job has ended and return the job's state; None if it is not the node's.

        The claim is given up, unless the state is `reverting` now: then the node goes on with that. *clean*: nothing of
        the run is alive any more. A job that goes on elsewhere is reserved for *offer_to* for some time.
        """
        with self._transaction() as connection:
            job = _found(connection, name, locked=True)
            if job is None or job.node_id != node.node_id:
                return None
            state, ends_as = next_state(job.state, job.ends_as, ended)
            values: dict[str, Any] = {"ends_as": ends_as, "clean": clean}
            if state != "reverting" or (ended == "stopped" and job.state == "reverting"):
                values["node_id"] = None
            if offer_to is not None and state in RUNNABLE:
                values |= {"offered_to": offer_to.node_id, "offered_until": DatabaseNow() + offer_s}
            if state in FINISHED:
                values["finished"] = DatabaseNow()
            if state == job.state:
                connection.execute(_of(name).values(**values))
                _record(connection, name, state, reason or "handed over", node.name)
            else:
                _change(connection, job, state, reason=reason or job.reason, node=node.name, **values)
            return state

    def await_match(self, name: str, *, wait_s: float, reason: str) -> None:
        """Note that no living node matches the job; pause it with *reason* when that has been so for *wait_s*."""
        with self._transaction() as connection:
            job = _found(connection, name, locked=True)
            if job is None or job.state not in RUNNABLE or job.node is not None:
                return
            if job.waiting_since is None:
                connection.execute(_of(name).values(waiting_since=DatabaseNow()))
                _record(connection, name, job.state, reason, None)
                return
            waited = connection.execute(sa.select(DatabaseNow() - job.waiting_since)).scalar_one()
            if waited >= wait_s and job.state == "running":
                _change(connection, job, "paused", reason=reason, node_id=None, waiting_since=None)
                connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))

    def end_wait(self, name: str) -> None:
        """Note that a living node matches the job again, as if it had not waited for one."""
        with self._transaction() as connection:
            connection.execute(_of(name).values(waiting_since=None))

    def prune_jobs(self, *, retention_s: float) -> list[str]:
        """Forget jobs, finished for *retention_s*, that left nothing at their sources; return their names.

        Of other jobs, what is as old as that in their histories is forgotten.
        """
        begin = DatabaseNow() - retention_s
        old = sa.select(JOBS.c.name).where(JOBS.c.state.in_(REVERTED), JOBS.c.finished < begin)
        with self._transaction() as connection:  # locked: one of them may be created anew at this moment
            connection.execute(sa.delete(JOB_EVENTS).where(JOB_EVENTS.c.at < begin))
            names = list(connection.execute(old.with_for_update(skip_locked=True)).scalars())
            for name in names:
                forget(connection, name)
        return names

    def _create_job(
        self,
        connection: sa.Connection,
        name: str,
        definition: Mapping[str, Any],
        *,
        owner: str,
        locality: Locality,
        schedule: str | None,
    ) -> JobRecord:
        known = _found(connection, name, locked=True)
        if known is not None and known.state not in FINISHED:
            raise ConfigError(f"changefeed '{name}' is a job already ({known.state}); choose another name")
        if known is not None and known.state == "revert-failed":
            raise ConfigError(
                f"job '{name}' has ended, but its source still holds what it created there; drop that with `cdc cancel"
                f" {name}`, leave it there with `cdc drop {name} --forget-only`, or choose another name"
            )
        require_match(name, locality, alive_sessions(connection))
        if known is not None:
            forget(connection, name)
        self._register(connection, name, definition)
        connection.execute(update(name).values(paused=None))
        connection.execute(
            sa.insert(JOBS).values(
                name=name,
                state="running",
                owner=owner,
                locality=str(locality),
                clean=True,
                schedule=schedule,
                created=DatabaseNow(),
            )
        )
        _record(connection, name, "running", "created", None)
        return _known(connection, name)


def _of(name: str) -> sa.Update:
    return sa.update(JOBS).where(JOBS.c.name == name)


def _found(connection: sa.Connection, name: str, *, locked: bool = False) -> JobRecord | None:
    """Return the job. *locked*: no other transaction changes it, or extends the session of its node, until the end."""
    selected = _SELECT.where(JOBS.c.name == name)
    row = connection.execute(selected.with_for_update(of=JOBS) if locked else selected).one_or_none()
    if row is None:
        return None
    if locked and row.node_id is not None:
        connection.execute(sa.select(NODES.c.node_id).where(NODES.c.node_id == row.node_id).with_for_update())
    return job_record(row, alive={node.node_id: node.name for node in alive_sessions(connection)})


def _known(connection: sa.Connection, name: str, *, locked: bool = False) -> JobRecord:
    job = _found(connection, name, locked=locked)
    if job is None:
        known = connection.execute(sa.select(JOBS.c.name)).scalars()
        raise ConfigError(f"there is no job '{name}'" + did_you_mean(name, known))
    return job


def _all(connection: sa.Connection, nodes: Sequence[NodeRecord], *where: sa.ColumnElement[bool]) -> list[JobRecord]:
    alive = {node.node_id: node.name for node in nodes}
    rows = connection.execute(_SELECT.where(*where).order_by(JOBS.c.name))
    return [job_record(row, alive=alive) for row in rows]


def _is_offered(connection: sa.Connection, job: JobRecord, node: NodeRecord, alive: Mapping[str, NodeRecord]) -> bool:
    """Return whether the job is reserved for another living node than *node*."""
    if job.offered_to in (None, node.node_id) or job.offered_to not in alive or job.offered_until is None:
        return False
    return bool(connection.execute(sa.select(DatabaseNow() < job.offered_until)).scalar_one())


def _change(
    connection: sa.Connection,
    job: JobRecord,
    state: JobState,
    *,
    reason: str | None,
    node: str | None = None,
    **values: Any,
) -> None:
    assert state in FOLLOWING[job.state], f"{job.state} -> {state}"
    connection.execute(_of(job.name).values(state=state, reason=reason, **values))
    _record(connection, job.name, state, reason, node)


def _record(connection: sa.Connection, name: str, state: JobState, reason: str | None, node: str | None) -> None:
    connection.execute(sa.insert(JOB_EVENTS).values(name=name, at=DatabaseNow(), state=state, reason=reason, node=node))
