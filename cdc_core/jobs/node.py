"""A node: it joins the store, adopts jobs, obeys what people ask of them, and hands them over."""

from __future__ import annotations

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.engine.query_host import QueryHost
from cdc_core.errors import ConfigError, RetryableError
from cdc_core.jobs.adoption import choose, successor
from cdc_core.jobs.cluster import NODES, Cluster
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.joining import LastSessionFile, join
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.retention_limit import RetentionLimit
from cdc_core.jobs.running_jobs import Balance, RunningJobs
from cdc_core.jobs.schedules import Schedules
from cdc_core.jobs.settings import NodeSettings
from cdc_core.jobs.time_limit import TimeLimit, end_process
from cdc_core.options import format_duration
from cdc_core.plugins.host import PluginHost
from cdc_core.private_files import make_state_directory
from cdc_core.store.job_values import Adoption, JobRecord, NodeRecord, Overview, unable
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import Report
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Sample


@dataclass(slots=True)
class NodeCounts:
    """Counts of the node with these settings. The node's thread writes them; any thread may read."""

    settings: NodeSettings
    adoptions: int = 0
    failovers: int = 0
    lost_sessions: int = 0
    expired: int = 0

    def adopted(self, job: Adoption) -> None:
        """Count a job that the node has claimed."""
        self.adoptions += 1
        self.failovers += not job.clean

    def samples(self) -> Sequence[Sample]:
        settings = self.settings
        return (
            Sample(metrics.NODE_INFO, 1, (settings.name, version("cdc-core"), settings.locality)),
            Sample(metrics.NODE_ADOPTIONS, self.adoptions),
            Sample(metrics.NODE_FAILOVERS, self.failovers),
            Sample(metrics.NODE_SESSIONS_LOST, self.lost_sessions),
            Sample(metrics.NODE_EXPIRED, self.expired),
        )


log = logging.getLogger(__name__)

_USER = "the node"
"""Who holds the Spark session beside the jobs: it stays warm when there is none."""
_HOUSEKEEPING_S = 60.0
_PRUNING_S = 3600.0
_LOST_LIMIT_S = 60.0
"""How long what it runs may take to end when the session is lost."""


class Node:
    """One node of the store. `run` is its life; `drain` and `abandon` may be called from any thread or signal handler.

    What hangs, such as a plugin, must not keep the node from leaving or from joining again: then its process ends, with
    all that it has started.

    Jobs share *host*. *keep_secret* is called with the secrets of each changefeed before anything of it is logged.
    `counts` is what the node has done so far.
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
        self.counts = NodeCounts(settings)
        self._host = host
        self._store = ProgressStore(settings.store)
        self._schedules, self._retention_limit = Schedules(self._store), RetentionLimit(self._store)
        self._cluster = Cluster(settings)
        self._definitions = Definitions(self._store, plugins, settings, self._cluster, keep_secret=keep_secret)
        self._running = RunningJobs(settings, host, self._store, self._definitions, wake=self._wake)
        self._free_for: Counter[str] = Counter()
        self._balance = Balance()
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._leaving = self._abandoned = self._outage_logged = False
        self._to_leave = self._limit("drained", settings.drain_limit)
        self._cleaned_at = self._pruned_at = time.monotonic()

    def drain(self) -> None:
        """Have the running steps end and be saved, hand over the jobs, then leave. Returns at once."""
        self._leaving = True
        self._to_leave.begin()
        self._wake()

    def abandon(self) -> None:
        """As `drain`, without waiting for the running steps, which the next nodes repeat."""
        self._abandoned = True
        self.drain()

    def run(self) -> None:
        """Return when the node has left. Raises: ConfigError when it cannot join; what keeps Spark from starting."""
        settings = self._settings
        make_state_directory(settings.home)
        with RunLock(settings.home / "node.lock") as lock:
            if not lock.acquire():
                raise ConfigError(
                    f"a node is already running from {settings.home} (process {lock.holder}); give this node another"
                    " --directory or --name"
                )
            self._running.spares.remove_left()
            self._last_session = LastSessionFile(settings.home / "node.lock")
            self._store.open()
            try:
                self._warm_up()  # before it joins: no job is to wait for Spark here while another node is warm
                lease = self._join()
                while lease is not None:
                    lease = self._serve(lease)
            finally:
                self._running.abandon_all()  # none, unless an error ends the node
                self._running.spares.end()
                self._host.release(_USER)
                self._store.close()
                self._to_leave.met()
        log.info("node '%s' has left", settings.name)

    def _warm_up(self) -> None:
        if (self._settings.spark or {}).get("master") == NODES:  # its jobs have sessions of their own
            return
        log.info("node '%s' is starting Spark, and will join when Spark is ready", self._settings.name)
        self._host.acquire(_USER)
        try:
            self._host.preload(stopped=lambda: self._leaving)
        except RetryableError as error:  # what it says of executors, a job says better
            log.warning("node '%s': preloading Spark failed: %s", self._settings.name, one_line(error))
        log.info("node '%s' has a warm Spark session", self._settings.name)

    def _join(self) -> Lease | None:
        return join(self._settings, self._store, self._last_session, rest=self._rest, leaving=lambda: self._leaving)

    def _serve(self, lease: Lease) -> Lease | None:
        """Run jobs until the session is over, and return the next one; None when the node is to leave."""
        left, lost = False, self._limit("lost its session", min(_LOST_LIMIT_S, self._settings.drain_limit))

        def lose() -> None:
            lost.begin()
            self._cluster.abandon()
            self._running.abandon_all()
            self._wake()

        try:
            measuring = HistoryMeter(self._settings.store, self._resolved)
            with lease.guarding(self._running.extend, lose), self._cluster.joined(lease), measuring:
                left = self._work_on(lease)
                while self._running.by_name:
                    self._settle_ended(lease, lost=True)
                    if self._running.by_name:
                        self._rest(self._settings.poll)
        finally:
            lost.met()
            lease.end(leave=left)
        if left:
            return None
        self.counts.lost_sessions += 1
        with suppress(RetryableError):
            self._store.events.note("node_session_lost", node=self._settings.name)
        log.info("node '%s': its session expired, after it had stopped its jobs", self._settings.name)
        return self._join()

    def _resolved(self, report: Report) -> ResolvedChangefeed | None:
        """Return a changefeed as it would run here. One that this node must not run it must not measure either."""
        owner = "" if report.job is None else report.job.owner
        may = self._settings.record().takes(owner)
        return self._definitions.resolve(report.known.name, to_run=False) if may else None

    def _work_on(self, lease: Lease) -> bool:
        """Return True when the node is to leave and runs nothing anymore, False when the session is not safe."""
        next_poll = time.monotonic()
        while lease.is_safe:
            if self._leaving and not self._running.by_name:
                return True
            if time.monotonic() >= next_poll:
                next_poll = time.monotonic() + self._settings.poll
                self._poll(lease)
            if self._abandoned:
                self._running.abandon_all()
            elif self._leaving:
                self._running.stop_all()
            self._settle_ended(lease)
            if self._running.by_name or not self._leaving:
                self._rest(next_poll - time.monotonic())
        self._running.abandon_all()
        return False

    def _rest(self, limit_s: float) -> None:
        """Return when something has happened, otherwise after *limit_s*."""
        try:
            self._wakes.get(timeout=max(0.0, limit_s))
            while True:
                self._wakes.get_nowait()
        except queue.Empty:
            return

    def _wake(self) -> None:
        """Have `_rest` return. Takes no lock: signal handlers call it too."""
        self._wakes.put(None)

    def _limit(self, what: str, limit_s: float) -> TimeLimit:
        """Return a limit that ends this process when *what* the node does takes longer than that."""

        def expire() -> None:
            names = ", ".join(f"changefeed '{name}'" for name in sorted(self._running.by_name)) or "the node itself"
            log.critical(
                "node '%s' %s %s ago, and %s has still not ended: this process ends; start the node again",
                self._settings.name,
                what,
                format_duration(limit_s),
                names,
            )
            end_process()

        return TimeLimit(limit_s, expire)

    def _poll(self, lease: Lease) -> None:
        try:
            overview = self._store.claims.overview()
            if lease.node.draining and not self._leaving:
                log.info("node '%s' was asked to drain", self._settings.name)
                self.drain()
            elif self._leaving and not lease.node.draining:  # a signal said so
                self._store.nodes.drain(lease.node.node_id)
            self._apply_requests(overview, lease)
            if not self._leaving:
                self._adopt(overview, lease)
                self._move(overview, lease)
                self._running.restart_outdated()
                self._running.keep_spares()
                self._schedules.tick()
                self.counts.expired += len(self._retention_limit.enforce(overview.now))
                self._prune()
        except RetryableError as error:
            self._log_store_outage(error)
        else:
            self._outage_logged = False

    def _log_store_outage(self, error: RetryableError) -> None:
        """Log once that the store is out of reach."""
        if not self._outage_logged:
            log.warning("node '%s': %s", self._settings.name, error)
        self._outage_logged = True

    def _prune(self) -> None:
        if time.monotonic() - self._cleaned_at >= _HOUSEKEEPING_S:
            self._cleaned_at = time.monotonic()
            for name in self._store.claims.prune(retention_s=self._settings.retention):
                log.info("deleted job '%s', which finished long ago", name, extra={"changefeed": name})
        if time.monotonic() - self._pruned_at >= _PRUNING_S:
            self._pruned_at = time.monotonic()
            self._store.events.prune()

    def _apply_requests(self, overview: Overview, lease: Lease) -> None:
        """Stop what is to be paused, canceled or not run here anymore; begin what is claimed and not run."""
        mine = {job.name: job for job in overview.jobs if job.node_id == lease.node.node_id}
        self._running.stop_all_but(mine)
        for name in mine.keys() - self._running.by_name.keys():  # the store was out of reach in the middle
            job = mine[name]
            claimed = Adoption(name=name, state=job.state, epoch=job.epoch, clean=job.clean)
            self._running.begin(claimed, lease, leaving=self._leaving)

    def _adopt(self, overview: Overview, lease: Lease) -> None:
        free = [job for job in overview.jobs if job.node is None]
        self._definitions.forget_all_but(free)
        self._free_for = Counter({job.name: self._free_for[job.name] + 1 for job in free})
        me = replace(lease.node, problems=self._definitions.problems())
        choices = choose(overview, me, may_run=self._running.may_run, free_for=self._free_for)
        lease.problems = self._running.failures(free) | self._definitions.problems()
        for name in choices.adopt:
            adopted = self._store.claims.adopt(name, lease.node)
            if adopted is not None:
                self.counts.adopted(adopted)
                self._running.begin(adopted, lease, leaving=self._leaving)
        for name in choices.matched:
            self._store.claims.end_wait(name)
        for job in overview.jobs:
            if job.name in choices.unreverted:
                self._leave_unreverted(job, me, overview)
            elif job.name in choices.unmatched:
                there = "; ".join(sorted({str(node.locality) or "none" for node in overview.nodes}))
                reason = (
                    f"no live node matches execution_locality '{job.locality}'; the live nodes have the localities"
                    f" {there}"
                )
                self._store.claims.await_match(job.name, reason=reason)

    def _move(self, overview: Overview, lease: Lease) -> None:
        """Give a job to another node that has fewer, if it is time to."""
        found = self._balance.next_move(overview, lease.node, self._running.by_name)
        if found is not None:
            self._running.move(*found)

    def _leave_unreverted(self, job: JobRecord, me: NodeRecord, overview: Overview) -> None:
        known = self._store.changefeeds.find(job.name)
        nodes = [me if node.node_id == me.node_id else node for node in overview.nodes]
        why = "; ".join(f"{node.name}: {unable(node, job)}" for node in nodes if unable(node, job))
        reason = (
            f"what it created at its source {', '.join(known.sources) if known else ''} still exists, because no"
            f" live node can drop it ({why}); fix the cause and repeat `cdc cancel {job.name}`, or keep what it"
            f" created with `cdc drop {job.name} --forget-only`"
        )
        if self._store.claims.leave_unreverted(job.name, me, reason):
            log.warning("job '%s' is revert-failed: %s", job.name, reason, extra={"changefeed": job.name})

    def _settle_ended(self, lease: Lease, *, lost: bool = False) -> None:
        successor = partial(self._successor, lease.node) if self._leaving else None
        self._running.settle_ended(lease, on_outage=self._log_store_outage, successor=successor, lost=lost)

    def _successor(self, me: NodeRecord, name: str) -> NodeRecord | None:
        overview = self._store.claims.overview()
        job = next((job for job in overview.jobs if job.name == name), None)
        return None if job is None else successor(overview, job, leaving=me)
