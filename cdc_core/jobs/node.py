"""A node: it joins the store, adopts jobs, runs them, obeys what people ask of them, and hands them over."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.supervisor import Supervisor
from cdc_core.errors import ConfigError, FencedError, RetryableError
from cdc_core.jobs.adoption import choose, successor
from cdc_core.jobs.child import ChildRun
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.gc_protection import GcProtection
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.reverting import Reverting
from cdc_core.jobs.schedules import Schedules
from cdc_core.jobs.settings import NodeSettings
from cdc_core.masking import mask
from cdc_core.plugins.host import PluginHost
from cdc_core.spark.placement_settings import pin
from cdc_core.store.job_values import Adoption, Ended, JobRecord, NodeRecord, Overview
from cdc_core.store.progress import ProgressStore

__all__ = ["Node"]

log = logging.getLogger(__name__)

_HOLDER = "the node"
"""Who holds the Spark session beside the jobs: it stays warm when there is none."""
_OFFER_S = 10.0
"""How long a job is reserved for the node that it is offered to: several of its polls."""
_HOUSEKEEPING_S = 60.0
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LOOK_S = 0.1


@dataclass(slots=True)
class _Work:
    """What this node does for one job that it has claimed."""

    run: Supervisor | ChildRun | Reverting
    feed: ResolvedChangefeed | None = None
    told: bool = False
    """Whether it was told to stop."""
    after_unclean: bool = False
    """Whether an earlier node may still be in a call of the sink. A run that has begun has waited for that."""

    def leaves_nothing(self, clean: bool) -> bool:
        """Return whether nothing of the job is alive after a run that ended *clean*: neither of it nor of earlier."""
        waited = not self.after_unclean or (not isinstance(self.run, Reverting) and self.run.has_begun)
        return clean and waited


class Node:
    """One node of the store. `run` is its life; `drain` and `abandon` may be called from any thread.

    Jobs share *host*. *keep_secret* is called with the secrets of each changefeed before anything of it is logged.
    """

    def __init__(
        self,
        settings: NodeSettings,
        host: QueryHost,
        plugins: PluginHost,
        *,
        keep_secret: Callable[[frozenset[str]], None],
    ) -> None:
        self._settings = settings
        self._host = host
        self._store = ProgressStore(settings.store)
        self._schedules, self._protection = Schedules(self._store), GcProtection(self._store)
        self._definitions = Definitions(self._store, plugins, settings, keep_secret=keep_secret)
        self._work: dict[str, _Work] = {}
        self._not_before: dict[str, tuple[float, float]] = {}
        self._free_for: Counter[str] = Counter()
        self._leaving = threading.Event()
        self._abandoned = threading.Event()
        self._complained = False
        self._cleaned_at = time.monotonic()

    def drain(self) -> None:
        """Have the running steps end and be saved, hand over the jobs, then leave. Returns at once."""
        self._leaving.set()

    def abandon(self) -> None:
        """As `drain`, without waiting for the running steps, which the next nodes repeat."""
        self._abandoned.set()
        self._leaving.set()

    def run(self) -> None:
        """Return when the node has left. Raises: ConfigError when it cannot join; what keeps Spark from starting."""
        settings = self._settings
        settings.home.mkdir(parents=True, exist_ok=True)
        with RunLock(settings.home / "node.lock") as lock:
            if not lock.acquire():
                raise ConfigError(
                    f"a node is already running from {settings.home} (process {lock.holder}); give this one"
                    " another --directory or --name"
                )
            self._store.open()
            try:
                self._host.hold(_HOLDER)  # before it joins: no job is to wait for Spark here while another node is warm
                log.info("node '%s' has a warm Spark session", settings.name)
                lease = self._join()
                while lease is not None:
                    lease = self._serve(lease)
            finally:
                for work in self._work.values():  # none, unless an error ends the node
                    work.run.abandon()
                self._host.let_go(_HOLDER)
                self._store.close()
        log.info("node '%s' has left", settings.name)

    def _join(self) -> Lease | None:
        """Return a new session, as soon as the store gives one; None when the node is to leave before."""
        settings, complained = self._settings, False
        while not self._leaving.is_set():
            try:
                store = ProgressStore(settings.store)
                lease = Lease(store, settings.record(), lease_s=settings.lease, heartbeat_s=settings.heartbeat)
            except RetryableError as error:
                if not complained:
                    log.warning("node '%s' cannot join: %s", settings.name, error)
                complained = True
                self._leaving.wait(settings.poll)
            else:
                where = f", locality {settings.locality}" if settings.locality else ""
                log.info("node '%s' has joined %s%s", settings.name, self._store.shown, where)
                return lease
        return None

    def _serve(self, lease: Lease) -> Lease | None:
        """Run jobs until the session is over, and return the next one; None when the node is to leave."""
        left = False
        try:
            with lease.guarding(self._extend, self._abandon_all):
                left = self._work_on(lease)
                while self._work:
                    self._settle_ended(lease, lost=True)
                    time.sleep(_LOOK_S)
        finally:
            lease.end(leave=left)
        if left:
            return None
        log.info("node '%s' ran nothing any more when its session ended", self._settings.name)
        return self._join()

    def _work_on(self, lease: Lease) -> bool:
        """Return True when the node is to leave and runs nothing any more, False when the session is not safe."""
        next_poll = time.monotonic()
        while lease.is_safe:
            leaving = self._leaving.is_set()
            if leaving and not self._work:
                return True
            if time.monotonic() >= next_poll:
                next_poll = time.monotonic() + self._settings.poll
                self._poll(lease)
            if leaving:
                self._tell_all()
            self._settle_ended(lease)
            (self._abandoned if leaving else self._leaving).wait(_LOOK_S)
        self._abandon_all()
        return False

    def _extend(self, until: float) -> None:
        for work in list(self._work.values()):
            if isinstance(work.run, ChildRun):
                work.run.extend(until)

    def _abandon_all(self) -> None:
        for work in list(self._work.values()):
            work.run.abandon()

    def _poll(self, lease: Lease) -> None:
        try:
            overview = self._store.overview()
            if lease.node.draining and not self._leaving.is_set():
                log.info("node '%s' was asked to drain", self._settings.name)
                self._leaving.set()
            self._obey(overview, lease)
            if not self._leaving.is_set():
                self._adopt(overview, lease)
                self._schedules.tick()
                self._protection.tick(overview.now)
                self._keep_house()
        except RetryableError as error:
            self._complain(error)
        else:
            self._complained = False

    def _complain(self, error: RetryableError) -> None:
        """Log once that the store is out of reach."""
        if not self._complained:
            log.warning("node '%s': %s", self._settings.name, error)
        self._complained = True

    def _keep_house(self) -> None:
        if time.monotonic() - self._cleaned_at >= _HOUSEKEEPING_S:
            self._cleaned_at = time.monotonic()
            for name in self._store.prune_jobs(retention_s=self._settings.retention):
                log.info("job '%s', finished long ago, is forgotten", name)

    def _obey(self, overview: Overview, lease: Lease) -> None:
        """Stop what is to be paused, cancelled or not run here any more; begin what is claimed and not run."""
        mine = {job.name: job for job in overview.jobs if job.node_id == lease.node.node_id}
        for name, work in self._work.items():
            job = mine.get(name)
            if not isinstance(work.run, Reverting) and not work.told and (job is None or job.state != "running"):
                work.told = True
                work.run.stop()
        for name in mine.keys() - self._work.keys():  # the store was out of reach in the middle
            job = mine[name]
            claimed = Adoption(name=name, state=job.state, ends_as=job.ends_as, epoch=job.epoch, clean=job.clean)
            self._begin(claimed, lease)

    def _adopt(self, overview: Overview, lease: Lease) -> None:
        free = {job.name for job in overview.jobs if job.node is None}
        self._definitions.forget_all_but(free)
        self._free_for = Counter({name: self._free_for[name] + 1 for name in free})
        choices = choose(overview, lease.node, may_run=self._may_run, free_for=self._free_for)
        lease.problems = self._definitions.problems()
        for name in choices.adopt:
            adopted = self._store.adopt(name, lease.node)
            if adopted is not None:
                self._begin(adopted, lease)
        for name, other in choices.offer:
            self._store.offer(name, lease.node, other, for_s=_OFFER_S)
        for name in choices.matched:
            self._store.end_wait(name)
        for name in choices.unmatched:
            wanted = next(job.locality for job in overview.jobs if job.name == name)
            there = "; ".join(sorted({str(node.locality) or "none" for node in overview.nodes}))
            self._store.await_match(
                name,
                wait_s=self._settings.locality_wait,
                reason=f"no living node matches execution_locality '{wanted}'; the living nodes have the localities"
                f" {there}",
            )

    def _may_run(self, job: JobRecord) -> bool:
        if time.monotonic() < self._not_before.get(job.name, (0.0, 0.0))[0]:
            return False
        return self._definitions.why_not(job) is None

    def _begin(self, adopted: Adoption, lease: Lease) -> None:
        """Begin what an adopted job is in need of."""
        name, me = adopted.name, lease.node
        if self._leaving.is_set():
            self._store.settle(name, me, "stopped", clean=adopted.clean)
        elif adopted.state == "reverting":
            self._revert(name, lease)
        elif adopted.state != "running":  # nothing of it runs here, so it has stopped
            if self._store.settle(name, me, "stopped", clean=adopted.clean) == "reverting":
                self._revert(name, lease)
        else:
            self._run_job(adopted, lease)

    def _run_job(self, adopted: Adoption, lease: Lease) -> None:
        name, me = adopted.name, lease.node
        try:
            feed = pin(self._definitions.resolve(name), self._settings.place)
        except RetryableError:
            raise
        except Exception as error:  # a failing plugin must not affect other jobs
            self._store.settle(name, me, "paused", one_line(error), clean=adopted.clean)
            return
        log.info("job '%s' is adopted under epoch %d", name, adopted.epoch)
        run: Supervisor | ChildRun
        how: dict[str, Any] = {
            "resume_command": f"cdc resume {name}",
            "job_epoch": adopted.epoch,
            "after_unclean": not adopted.clean,
        }
        if feed.spark == (self._settings.spark or {}):
            store = ProgressStore(self._settings.store)
            run = Supervisor(feed, store=store, state_dir=self._settings.home, host=self._host, **how)
        else:
            run = ChildRun(feed, store=self._settings.store, state_dir=self._settings.home, until=lease.until, **how)
        self._work[name] = _Work(run, feed, after_unclean=not adopted.clean)
        run.start()

    def _revert(self, name: str, lease: Lease) -> None:
        log.info("job '%s' drops what it holds at its source", name)
        run = Reverting(name, self._definitions, node_id=lease.node.node_id)
        self._work[name] = _Work(run)
        run.start()

    def _tell_all(self) -> None:
        for work in self._work.values():
            if self._abandoned.is_set():
                work.run.abandon()
            elif not work.told:
                work.run.stop()
            work.told = True

    def _settle_ended(self, lease: Lease, *, lost: bool = False) -> None:
        """Save how work has ended that has. With *lost*, others may have the jobs: what cannot be saved is let be."""
        for name, work in list(self._work.items()):
            try:
                found = self._ending(work)
                if found is None:
                    continue
                ended, reason, clean = found
                clean = work.leaves_nothing(clean)
                to = self._successor(name, lease.node) if self._leaving.is_set() else None
                state = self._store.settle(name, lease.node, ended, reason, clean=clean, offer_to=to, offer_s=_OFFER_S)
            except RetryableError as error:
                self._complain(error)
                if not lost:
                    return  # until the store is there again
                state, ended, reason = None, "stopped", None
            del self._work[name]
            self._note_end(name, ended, reason)
            what = "is not this node's any more" if state is None else f"is {state}"
            log.info("job '%s' %s%s", name, what, f": {reason}" if reason else "")
            if state == "reverting" and not isinstance(work.run, Reverting):
                self._revert(name, lease)
                if lost:
                    self._work[name].run.abandon()

    def _note_end(self, name: str, ended: Ended, reason: str | None) -> None:
        """Leave a job alone for a while that this node could not keep running: longer each time, a minute at most."""
        _, wait_s = self._not_before.pop(name, (0.0, _FIRST_WAIT_S))
        if ended == "stopped" and reason is not None:
            self._not_before[name] = time.monotonic() + wait_s, min(2 * wait_s, _LONGEST_WAIT_S)

    def _successor(self, name: str, me: NodeRecord) -> NodeRecord | None:
        overview = self._store.overview()
        job = next((job for job in overview.jobs if job.name == name), None)
        return None if job is None else successor(overview, job, leaving=me)

    def _ending(self, work: _Work) -> tuple[Ended, str | None, bool] | None:
        """Return how *work* has ended, why, and whether nothing of it is alive; None while it goes on."""
        if isinstance(work.run, Reverting):
            return None if work.run.ended is None else (work.run.ended, work.run.reason, True)
        outcome = work.run.outcome
        if outcome is None or work.feed is None:
            return None
        if outcome.error is None:
            return "succeeded" if outcome.kind == "complete" else "stopped", None, outcome.kind == "stopped"
        text = mask(one_line(outcome.error), work.feed.secrets())
        if isinstance(outcome.error, FencedError | RetryableError):
            return "stopped", text, False
        if not work.run.has_begun and self._store.load(work.feed.name) is not None:
            return "paused", text, True  # this node's fault, perhaps: nothing of the job is given up for it
        if work.feed.options.on_error == "pause":
            return "paused", f"job failed ({text}) but is being paused because of on_error=pause", True
        return "failed", text, True
