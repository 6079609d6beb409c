"""The jobs that a node runs: it begins what adopted jobs are in need of, saves how that has ended, and moves some."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc_core.config.interpolation import reference_values
from cdc_core.engine.attempt_progress import saved_steps
from cdc_core.engine.error_text import one_line
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.supervisor import Supervisor
from cdc_core.errors import RetryableError
from cdc_core.jobs.adoption import surplus
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.running_job import Reverting, RunningJob
from cdc_core.jobs.settings import NodeSettings
from cdc_core.jobs.spares import Spares
from cdc_core.jobs.subprocess_run import SubprocessRun
from cdc_core.store.job_values import NOT_NOW, RUNNABLE, Adoption, Ended, JobRecord, NodeRecord, Overview
from cdc_core.store.progress import ProgressStore

_FIRST_WAIT_S = 1.0
_MAX_WAIT_S = 60.0


class BackOff:
    """How long this node waits before it adopts a job again: longer after each failure, a minute at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[str, tuple[float, float, str]] = {}

    def why_not(self, name: str) -> str | None:
        """Return how job *name* has failed here, None if the node may run it."""
        not_before, _, reason = self._waits.get(name, (float("-inf"), 0.0, ""))
        return None if self._clock() >= not_before else reason

    def ended(self, name: str, ended: Ended, reason: str | None) -> None:
        """Note how the run of job *name* has ended here. One that was stopped for a *reason* failed."""
        _, wait_s, _ = self._waits.pop(name, (0.0, _FIRST_WAIT_S, ""))
        if ended == "stopped" and reason is not None:
            self._waits[name] = self._clock() + wait_s, min(2 * wait_s, _MAX_WAIT_S), reason


_SETTLED_POLLS = 30
"""For so many polls all jobs have a node, and the same job is to be moved, before it is: no move for a short stay, and
none of a job that has only just begun.
"""
_STAYS_S = 3600.0
"""How long a job that was moved is not moved again by this node: the other may not have been able to run it."""


class Balance:
    """Remembers since when a node has had more than its share, and what it has moved."""

    def __init__(self) -> None:
        self._next, self._polls = "", 0
        self._moved: dict[str, float] = {}

    def next_move(
        self, overview: Overview, me: NodeRecord, running: Mapping[str, RunningJob]
    ) -> tuple[str, NodeRecord] | None:
        """Return a job that node *me* is to move now, and the node that is to have it. Called at each poll.

        One at a time, and none that is still starting.
        """
        now = time.monotonic()
        self._moved = {name: at for name, at in self._moved.items() if now - at < _STAYS_S}
        movable = [name for name, each in running.items() if each.is_movable and name not in self._moved]
        busy = any(job.state in RUNNABLE and job.node is None for job in overview.jobs)
        busy = busy or any(each.moves_to is not None for each in running.values())
        found = None if busy else surplus(overview, me, movable)
        name = "" if found is None else found[0]
        self._next, self._polls = name, self._polls + 1 if name == self._next else 1
        if found is None or self._polls < _SETTLED_POLLS:
            return None
        self._polls = 0
        self._moved[found[0]] = now
        return found


log = logging.getLogger(__name__)


class RunningJobs:
    """What the node with *settings* runs, by the names of jobs. Used by its thread, but for what says otherwise.

    *wake* is called, from any thread, when something has ended.
    """

    def __init__(
        self,
        settings: NodeSettings,
        host: QueryHost,
        store: ProgressStore,
        definitions: Definitions,
        *,
        wake: Callable[[], None],
    ) -> None:
        self.by_name: dict[str, RunningJob] = {}
        self._settings = settings
        self._host = host
        self._store = store
        self._definitions = definitions
        self._wake = wake
        self._back_off = BackOff()
        self.spares = Spares(settings)

    def may_run(self, job: JobRecord) -> bool:
        """Return whether this node can do what *job* needs now; not to run it if it has failed here a moment ago."""
        is_over = job.state != "running" or self._back_off.why_not(job.name) is None
        return is_over and self._definitions.why_not(job) is None

    def failures(self, free: Iterable[JobRecord]) -> dict[str, str]:
        """Return how those *free* jobs that are to run have failed here a moment ago."""
        found = {job.name: self._back_off.why_not(job.name) for job in free if job.state == "running"}
        return {name: f"{NOT_NOW}{reason}" for name, reason in found.items() if reason is not None}

    def begin(self, adopted: Adoption, lease: Lease, *, leaving: bool) -> None:
        """Begin what an adopted job is in need of; hand it over if the node is *leaving*. Raises: RetryableError."""
        name, me = adopted.name, lease.node
        if leaving:
            self._store.claims.settle(name, me, "stopped", clean=adopted.clean)
        elif adopted.state == "reverting":
            self._revert(name, lease)
        elif adopted.state != "running":  # nothing of it runs here, so it has stopped
            if self._store.claims.settle(name, me, "stopped", clean=adopted.clean) == "reverting":
                self._revert(name, lease)
        else:
            self._run(adopted, lease)

    def move(self, name: str, other: NodeRecord) -> None:
        """Stop job *name*, and hand it over to node *other*."""
        log.info("job '%s' moves to node '%s', which has fewer jobs", name, other.name, extra={"changefeed": name})
        self.by_name[name].moves_to = other
        self._stop(self.by_name[name])

    def stop_all_but(self, mine: dict[str, JobRecord]) -> None:
        """Stop what is to be paused or canceled, or runs elsewhere: what is not running among *mine*."""
        for name, running in self.by_name.items():
            job = mine.get(name)
            if not isinstance(running.run, Reverting) and (job is None or job.state != "running"):
                self._stop(running)

    def restart_outdated(self) -> None:
        """Stop what fails and whose references have changed: whoever adopts it resolves them. Called at each poll."""
        for name, running in self.by_name.items():
            if not running.stop_requested and running.is_outdated:
                text = "job '%s' restarts, because what its definition refers to has changed"
                log.info(text, name, extra={"changefeed": name})
                self._stop(running)

    def stop_all(self) -> None:
        """Have the running steps end and be saved."""
        for running in self.by_name.values():
            self._stop(running)

    def keep_spares(self) -> None:
        """Have processes wait for the next jobs, if there is room for one. Called at each poll."""
        if len(self.by_name) < self._settings.max_jobs:
            self.spares.keep(calm=all(each.has_begun for each in self.by_name.values()))

    def abandon_all(self) -> None:
        """End everything without waiting for the running steps. Called from any thread."""
        for running in list(self.by_name.values()):
            running.run.abandon()
            running.stop_requested = True

    def extend(self, until: float) -> None:
        """Let processes run until the lease ends at *until*. Called from any thread."""
        for running in list(self.by_name.values()):
            if isinstance(running.run, SubprocessRun):
                running.run.extend(until)

    def settle_ended(
        self,
        lease: Lease,
        *,
        on_outage: Callable[[RetryableError], None],
        successor: Callable[[str], NodeRecord | None] | None,
        lost: bool,
    ) -> None:
        """Save how work has ended that has; what cannot be saved waits for the store, which *on_outage* is told of.

        A node that leaves offers each job to its *successor*. With *lost*, others may have the jobs: what cannot be
        saved is left alone.
        """
        for name, running in list(self.by_name.items()):
            try:
                found = running.ending(self._store)
                if found is None:
                    continue
                ended, reason = found.ended, found.reason
                to = running.moves_to if successor is None else successor(name)
                state = self._store.claims.settle(name, lease.node, ended, reason, clean=found.clean, offer_to=to)
            except RetryableError as error:
                on_outage(error)
                if not lost:
                    return
                state, ended, reason = None, "stopped", None
            del self.by_name[name]
            self._back_off.ended(name, ended, reason)
            left = "is released, so that any node may adopt it" if state == "running" else f"is {state}"
            what = "no longer belongs to this node" if state is None else left
            log.info("job '%s' %s%s", name, what, f": {reason}" if reason else "", extra={"changefeed": name})
            if state == "reverting" and not isinstance(running.run, Reverting):
                self._revert(name, lease)
                if lost:
                    self.by_name[name].run.abandon()

    def _stop(self, running: RunningJob) -> None:
        if not running.stop_requested:
            running.stop_requested = True
            running.run.stop()

    def _run(self, adopted: Adoption, lease: Lease) -> None:
        name = adopted.name
        try:
            running = self._made(adopted, lease)
        except RetryableError:
            raise
        except Exception as error:  # it was in order when it was looked at
            problem = one_line(error)
            self._definitions.note(name, adopted.state, problem)
            self._back_off.ended(name, "stopped", problem)
            self._store.claims.settle(name, lease.node, "stopped", problem, clean=adopted.clean)
            return
        log.info("adopted job '%s', epoch %d", name, adopted.epoch, extra={"changefeed": name})
        self.by_name[name] = running
        running.run.start()

    def _made(self, adopted: Adoption, lease: Lease) -> RunningJob:
        settings, known = self._settings, self._store.changefeeds.find(adopted.name)
        # before the feed is resolved: what changes in between is a change
        references = reference_values(known and known.definition, environ=os.environ)
        feed = self._definitions.to_start(adopted.name)
        before = None if adopted.clean else saved_steps(adopted.name, self._store)
        how: dict[str, Any] = {
            "resume_command": f"cdc resume {adopted.name}",
            "job_epoch": adopted.epoch,
            "after_unclean": not adopted.clean,
            "on_end": self._wake,
        }
        if feed.spark == (settings.spark or {}):
            store = ProgressStore(settings.store)
            run: Supervisor | SubprocessRun = Supervisor(
                feed, store=store, state_dir=settings.home, host=self._host, **how
            )
        else:
            how |= {"until": lease.until, "spare": self.spares.take(feed.spark)}
            run = SubprocessRun(feed, store=settings.store, state_dir=settings.home, **how)
        return RunningJob(run, feed, steps_before=before, references=references)

    def _revert(self, name: str, lease: Lease) -> None:
        log.info("dropping what job '%s' holds at its source", name, extra={"changefeed": name})
        run = Reverting(name, self._definitions, node_id=lease.node.node_id, on_end=self._wake)
        self.by_name[name] = RunningJob(run)
        run.start()
