"""The life of a job: paused, resumed, restarted, canceled, forgotten; and of a node, which may be drained."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Literal

import sqlalchemy as sa

from cdc_core.changefeeds.finding import Finder
from cdc_core.errors import ConfigError, TerminalError
from cdc_core.store.deletion import drop
from cdc_core.store.events import add_event
from cdc_core.store.job_rows import (
    asked_job,
    change_job,
    found_job,
    known_job,
    now_of,
    of_job,
    pause_run,
    record_event,
    resume_job,
    run_again,
)
from cdc_core.store.job_tables import NODES, DatabaseNow
from cdc_core.store.job_values import (
    FINISHED,
    FOLLOWING,
    RESTING,
    REVERTED,
    JobRecord,
    JobState,
    NodeRecord,
    node_record,
)
from cdc_core.store.nodes import alive_sessions, require_match
from cdc_core.store.statuses import is_running
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.verbs import RULES, UnknownError, Verb

_POLL_INTERVAL_S = 0.2
_DONE: Mapping[Verb, tuple[Callable[[JobRecord], bool], str]] = {
    "pause": (lambda job: job.state == "paused", "it was not paused"),
    "resume": (lambda job: job.state == "running" and job.node is not None, "no node runs it"),
    "cancel": (lambda job: job.state == "canceled", "it was not canceled"),
}
"""When a verb is done that nodes carry out, and what is said when it never will be."""


class Lifecycle(Finder):
    """The verbs of jobs that need neither the source nor the sink. *reason* appears in the job's history."""

    def pause(self, name: str, reason: str, kind: Literal["pause", "stop"] = "pause") -> JobRecord:
        """Pause the job, or stop it: pause it with `paused_for` "stop". A job that an error has stopped can only be
        changed to stopped. A changefeed of `cdc run` is paused at once if no run is alive, and the next run waits. If a
        run died before it could pause, a second request pauses the changefeed.
        """
        paused_for = "stop" if kind == "stop" else None
        with self.store.transaction() as connection:
            job = asked_job(connection, name, kind)
            if job.state in RULES["pause"].does:
                if job.node is not None or (job.is_run and is_running(connection, name)):
                    change_job(connection, job, "pause-requested", reason=reason, paused_for=paused_for)
                else:
                    change_job(connection, job, "paused", reason=reason, paused_for=paused_for, node_id=None)
                if job.node is None and not job.is_run:  # its node is dead, or frozen: fence it
                    connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))
            elif job.is_run and job.state == "pause-requested" and not is_running(connection, name):
                why = reason if job.paused_for == "restart" else job.reason
                change_job(connection, job, "paused", reason=why, paused_for=None)
            elif job.state == "failed":
                if kind == "stop":
                    change_job(connection, job, "paused", reason=reason, paused_for=paused_for)
            elif job.paused_for != paused_for and (kind == "stop" or job.paused_for != "error"):
                connection.execute(of_job(name).values(paused_for=paused_for, reason=reason))
                record_event(connection, name, job.state, reason, None, at=now_of(job))
                add_event(connection, "pause_requested", name, message=reason)
            return known_job(connection, name, of_runs=True)

    def resume(self, name: str, reason: str = "resumed") -> JobRecord:
        """Let the job run from its position: at once, or after a requested pause has taken effect.

        For a changefeed of `cdc run`, the waiting run continues, or the next one. Raises: RefusedError, also if no node
        matches.
        """
        with self.store.transaction() as connection:
            job = asked_job(connection, name, "resume")
            if job.state in RESTING and not job.is_run:
                require_match(name, job.locality, alive_sessions(connection), state=job.state)
            resume_job(connection, job, reason, offer_to=self._node)
            return known_job(connection, name, of_runs=True)

    def restart(self, name: str, reason: str) -> JobRecord:
        """Restart the job after its running step; a job that an error has stopped runs again.

        A job that a user has paused, or that no node runs, does not change. Raises: RefusedError, also if no node
        matches.
        """
        with self.store.transaction() as connection:
            job = asked_job(connection, name, "restart")
            if job.state == "running" and job.node is not None:
                change_job(connection, job, "pause-requested", reason=reason, paused_for="restart")
            elif job.rests_for_error:
                require_match(name, job.locality, alive_sessions(connection), state=job.state)
                run_again(connection, job, reason, offer_to=self._node)
            return known_job(connection, name)

    def cancel(self, name: str, reason: str, *, only: Collection[JobState] = tuple(FOLLOWING)) -> JobRecord:
        """Cancel the job; a node then drops what it created at its source.

        Raises: RefusedError, also if its state is not among *only*.
        """
        with self.store.transaction() as connection:
            return _cancel(connection, name, reason, only)

    def delete(self, name: str, reason: str) -> None:
        """Delete the job if it has ended and left nothing at its source; otherwise, cancel it."""
        with self.store.transaction() as connection:
            job = known_job(connection, name, locked=True)
            if job.state in REVERTED and not job.is_leaving:
                drop(connection, name)
            else:
                _cancel(connection, name, reason)

    def set_owner(self, name: str, owner: str) -> JobRecord:
        """Give the job another owner."""
        with self.store.transaction() as connection:
            job = asked_job(connection, name, "own")
            if job.owner == owner:
                return job
            connection.execute(of_job(name).values(owner=owner))
            record_event(connection, name, job.state, f"the owner changed from {job.owner} to {owner}", None)
            add_event(connection, "alter_owner", name, owner=owner, before=job.owner)
            return known_job(connection, name)

    def drain(self, node: str) -> NodeRecord:
        """Make the live node of this name hand over its jobs and end. Raises: UnknownError if there is none."""
        mine = (NODES.c.name == node, NODES.c.expires > DatabaseNow())
        begun = sa.update(NODES).where(*mine, NODES.c.is_draining.is_(False)).values(is_draining=True)
        with self.store.transaction() as connection:
            begins = connection.execute(begun).rowcount
            row = connection.execute(sa.select(NODES).where(*mine)).one_or_none()
            if row is None:
                known = ", ".join(sorted(each.name for each in alive_sessions(connection))) or "none"
                raise UnknownError(
                    f"there is no live node '{node}' in the store {self.store.shown}; live nodes: {known}"
                )
            if begins:
                add_event(connection, "node_draining", node=node)
            return node_record(row)

    def wait(self, name: str, verb: Verb) -> JobRecord:
        """Return the job once nodes, or its run, have carried out *verb*: pause, resume or cancel.

        Raises: TerminalError if that will never happen, because the job has stopped or ended in another way.
        """
        done, instead = _DONE[verb]
        while True:
            job = self.store.jobs.find(name, of_runs=True)
            if job is None:
                raise TerminalError(f"{instead}: job '{name}' is no longer in the store {self.store.shown}")
            if done(job):
                return job
            if verb == "pause" and (job.state in RULES["pause"].does or job.paused_for == "restart"):
                raise TerminalError(f"{instead}: job '{name}' was resumed in the meantime")
            if job.is_run and job.state == "pause-requested":
                self._end_pause(name)
            if job.state in FINISHED | RESTING:
                reason = f": {job.reason}" if job.reason else ""
                raise TerminalError(f"{instead}: job '{name}' is {job.state}{reason}")
            time.sleep(_POLL_INTERVAL_S)

    def _end_pause(self, name: str) -> None:
        """Have the requested pause take effect if the run that was to pause has died."""
        with self.store.transaction(reading=True) as connection:
            if is_running(connection, name):
                return
        with self.store.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is not None and job.is_run and job.state == "pause-requested" and not is_running(connection, name):
                pause_run(connection, job)

    def wait_for_end(self, node: NodeRecord) -> None:
        """Return once the draining node has ended. Raises: TerminalError if it has died."""
        while True:
            now, sessions = self.store.nodes.all()
            mine = [each for each in sessions if each.node_id == node.node_id]
            if not mine:
                return
            if mine[0].expires <= now:
                raise TerminalError(
                    f"node '{node.name}' died while it was draining; other nodes adopt its jobs and repeat their"
                    f" last steps"
                )
            time.sleep(_POLL_INTERVAL_S)


def _cancel(
    connection: sa.Connection, name: str, reason: str, only: Collection[JobState] = tuple(FOLLOWING)
) -> JobRecord:
    job = asked_job(connection, name, "cancel")
    if job.state not in only:
        raise ConfigError(f"job '{name}' was not canceled: it is {job.state} now")
    if job.state in RULES["cancel"].does:
        change_job(connection, job, "cancel-requested", reason=reason, finished=None)
    return known_job(connection, name)
