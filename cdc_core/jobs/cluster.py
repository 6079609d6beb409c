"""The cluster that the nodes of a store form: Spark's own master on the one that leads, a worker on each with cores.

Who leads is in the store, for as long as its session lives. What the master writes goes there too: with it the next
master takes over the workers and applications of the last one, and their executors keep running.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.engine.host_requirements import required_versions, versions_here
from cdc_core.engine.version_watch import VersionWatch
from cdc_core.errors import ConfigError, RetryableError
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.nodes_master import listens
from cdc_core.jobs.settings import NodeSettings
from cdc_core.plugins.entry_points import PLUGINS, published
from cdc_core.spark.host_limits import host_memory
from cdc_core.spark.jvm import LOOPBACK
from cdc_core.spark.log_file import keep_newest
from cdc_core.spark.standalone import SLOTS, MasterProcess, WorkerProcess, application_settings
from cdc_core.store.cluster import ClusterRecord
from cdc_core.store.progress import ProgressStore, sqlite_file

log = logging.getLogger(__name__)

NODES = "nodes"
"""The Spark master of a changefeed that runs on all nodes with cores."""
_POLL_INTERVAL_S = 0.5
_ASTRAY_S = 30.0
"""How long a worker may know another master than the one that leads, or none, while that one listens."""
_SILENT_S = 120.0
"""How long it may say nothing, as on a host that is busy: its executors end with it."""
_START_S = 90.0
"""How much longer a new one may: Java starts slowly on a busy host, and would be restarted forever."""
_MASTER_SILENT_S = 60.0
"""How long a master may be silent. Executors do not need it meanwhile."""
_FEW_S = 180.0
"""How long a master may have fewer than half of the workers: from another node, the master may reach more."""
_AGAIN_S = 5.0
_RESIGNED_S = 10.0
"""How long a node that has failed to lead leaves that to others."""


class Cluster:
    """This node's part in the cluster of its store.

    Raises: ConfigError when it offers cores and has no secret.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._store = ProgressStore(settings.store)
        self._secret = settings.secret()
        self._member: _Member | None = None
        if settings.cores and self._secret is None:
            raise ConfigError(
                "a node with --cores needs the secret that all such nodes share: put it into the variable"
                " CDC_CLUSTER_SECRET, or into a file for --cluster-secret-file; `openssl rand -hex 32` generates a"
                " secret"
            )
        intended = settings.address or sqlite_file(settings.store)
        if self._secret is not None and not intended and settings.reached_at == LOOPBACK:
            log.warning(
                "node '%s' reaches the store from %s, an address that other hosts cannot reach; set --address if"
                " the cluster has other hosts",
                settings.name,
                LOOPBACK,
            )

    def require(self) -> ClusterRecord:
        """Return the cluster. Raises: ConfigError when this node cannot be a driver of it, or it has no cores."""
        if self._secret is None:
            raise ConfigError(
                f"the master '{NODES}' needs the secret of the nodes' cluster, but this node has none: set "
                "CDC_CLUSTER_SECRET or --cluster-secret-file"
            )
        record = self._store.cluster.poll()
        if not record.members:
            raise ConfigError(
                f"the master is '{NODES}', but no node offers cores; start a node with `cdc node --cores N`"
            )
        return record

    def application(self, feed: ResolvedChangefeed) -> dict[str, str]:
        """Return the settings with which the job *feed* runs now, across the nodes that have the versions of this one.

        Raises: ConfigError, as `require` does, and when there is no slot left, or its settings take one.
        """
        record = self.require()
        assert self._secret is not None
        slot = self._store.cluster.take_slot(feed.name, count=SLOTS)
        if slot is None:
            raise ConfigError(f"{SLOTS} changefeeds already run across the nodes, which is the maximum")
        return application_settings(
            feed.spark,
            master=record.url,
            secret=_derived(self._secret, record),
            address=self._settings.reached_at,
            cores=record.cores(feed.options.execution_locality),
            executors=len(record.within(feed.options.execution_locality)),
            slot=slot,
            versions=required_versions(feed),
        )

    @contextmanager
    def joined(self, lease: Lease) -> Iterator[None]:
        """Take part inside the block, while *lease* is safe. Without cores there is nothing to do."""
        if not self._settings.cores:
            yield
            return
        member = self._member = _Member(self._settings, self._store, self._secret or "", lease)
        try:
            yield
        finally:
            self._member = None
            member.end()

    def abandon(self) -> None:
        """End the master here: another node may lead. Returns at once; for any thread, while the store may hang."""
        if self._member is not None:
            self._member.abandon()


class _Member:
    """The worker of a node, and the master while it leads. A thread of its own starts, watches and ends both."""

    def __init__(self, settings: NodeSettings, store: ProgressStore, secret: str, lease: Lease) -> None:
        self._settings = settings
        self._store = store
        self._secret = secret
        self._lease = lease
        self._home = settings.home / "cluster"
        self._address = settings.reached_at
        self._master: MasterProcess | None = None
        self._saved: Mapping[str, str] = {}
        self._worker: WorkerProcess | None = None
        self._versions = VersionWatch(installed)
        self._in_order_at = self._reached_at = self._heard_at = time.monotonic()
        self._master_heard_at = self._followed_at = self._heard_at
        self._start_at = self._lead_at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"cluster of node {settings.name}", daemon=True)
        self._thread.start()

    def abandon(self) -> None:
        """End the master; return at once. The worker ends soon."""
        self._over.set()
        if (master := self._master) is not None:
            master.abandon()

    def end(self) -> None:
        """End master and worker; return then."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        complained = False
        try:
            while not self._over.wait(_POLL_INTERVAL_S) and self._lease.is_safe:
                try:
                    may_lead = time.monotonic() >= self._lead_at
                    self._keep(self._store.cluster.poll(self._lease.node if may_lead else None))
                    complained = False
                except RetryableError as error:
                    if not complained:
                        log.warning("node '%s': its part of the cluster: %s", self._settings.name, one_line(error))
                    complained = True
                except Exception as error:  # such as a full disk: another node may have room
                    log.error("node '%s': its part of the cluster failed: %s", self._settings.name, one_line(error))
                    self._lead_at = time.monotonic() + _RESIGNED_S
                    self._end_master()
                    self._over.wait(_AGAIN_S)
        finally:
            self._end_worker()
            if self._master is not None:  # one that has lost its session may live on in the store for a while
                with suppress(RetryableError):
                    self._hand_over(self._master.epoch)

    def _keep(self, record: ClusterRecord) -> None:
        for process in (self._master, self._worker):
            if process is not None:
                keep_newest(process.log_path)
        leads = record.leader is not None and record.leader.node_id == self._lease.node.node_id
        if leads and (time.monotonic() < self._lead_at or record.is_leader_leaving):
            self._hand_over(record.epoch)
            return
        if self._master is not None and not (leads and self._master.epoch == record.epoch):
            log.info("node '%s' no longer leads the cluster", self._settings.name)
            self._end_master()
        if leads:
            self._keep_master(record)
        self._keep_worker(record)

    def _keep_master(self, record: ClusterRecord) -> None:
        now = time.monotonic()
        if self._master is not None and (state := self._master.state()) is not None:
            self._master_heard_at = now
            if 2 * state.get("aliveworkers", 0) >= len(record.members):
                self._followed_at = now
        if self._master is None:
            self._saved = of_living(record, self._store.cluster.files())
            self._master = MasterProcess(
                self._home,
                address=self._address,
                port=self._settings.master_port,
                secret=_derived(self._secret, record),
                files=self._saved,
                epoch=record.epoch,
            )
            self._master.start()
            self._master_heard_at = self._followed_at = now + _START_S
            log.info("node '%s' leads the cluster: spark://%s", self._settings.name, self._lease.node.master)
        elif self._over.is_set():  # it was abandoned
            return
        elif not self._master.is_running:
            self._resign(f"has ended; check that port {self._settings.master_port} is free")
        elif now - self._master_heard_at > _MASTER_SILENT_S:
            self._resign(f"has not answered for {_MASTER_SILENT_S:g} seconds")
        elif now - self._followed_at > _FEW_S:
            self._resign(
                f"has had fewer than half of the workers for {_FEW_S:g} seconds; check that all nodes can connect to"
                f" {self._lease.node.master} and have the same secret"
            )
        elif (files := self._master.files()) != self._saved:
            if self._store.cluster.save(files, epoch=record.epoch):
                self._saved = files
            else:
                self._end_master()

    def _keep_worker(self, record: ClusterRecord) -> None:
        found = {} if self._worker is None else self._worker.state() or {}
        self._lease.cores_used = int(found.get("coresused", 0))
        if record.leader is None:
            return
        name, master, now = self._settings.name, record.leader.master, time.monotonic()
        if found:  # it has started
            self._in_order_at, self._heard_at = min(self._in_order_at, now), now
        if self._worker is None or not self._worker.is_running:
            if now < self._start_at:
                return
            self._start_at = now + _AGAIN_S
            if self._worker is not None:
                log.warning("node '%s': the worker of its cluster has ended; see %s", name, self._worker.log_path)
                self._worker.kill()
            self._versions = VersionWatch(installed)
            self._worker = WorkerProcess(
                self._home,
                address=self._address,
                secret=_derived(self._secret, record),
                cores=self._settings.cores,
                memory=self._settings.memory or host_memory() // 2,
                locality=self._settings.place,
                versions=self._versions.first,
            )
            self._worker.start(record.url)
            self._in_order_at, self._reached_at, self._heard_at = now + _START_S, now, now + _START_S
        elif self._versions.has_changed():
            log.warning("node '%s': its worker restarts, because other versions are installed now", name)
            self._end_worker()
        elif not found:
            if now - self._heard_at > _SILENT_S:
                log.warning(
                    "node '%s': its worker has not answered for %g seconds, and is restarted; see %s",
                    name,
                    _SILENT_S,
                    self._worker.log_path,
                )
                self._end_worker()
        elif found.get("masterurl") == f"spark://{master}":
            self._in_order_at = self._reached_at = now
        elif now > self._in_order_at and not listens(master):  # a new master takes long to start on a busy host
            self._in_order_at = now
            if now - self._reached_at > _ASTRAY_S:
                self._reached_at = now
                log.warning(
                    "node '%s' cannot reach the cluster's master at %s, whose port must be open between all nodes",
                    name,
                    master,
                )
        elif now - self._in_order_at > _ASTRAY_S:
            log.warning(
                "node '%s': its worker is not registered with the cluster's master at %s, and is restarted; if that"
                " repeats, check that both nodes have the same secret, and see %s",
                name,
                master,
                self._worker.log_path,
            )
            self._end_worker()

    def _end_worker(self) -> None:
        self._lease.cores_used = 0
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _resign(self, why: str) -> None:
        assert self._master is not None
        text = "node '%s': another node may lead, because the cluster's master here %s, and see %s"
        log.warning(text, self._settings.name, why, self._master.log_path)
        self._lead_at = time.monotonic() + _RESIGNED_S
        self._hand_over(self._master.epoch)

    def _hand_over(self, epoch: int) -> None:
        """Let another node lead, with all that the master here has written, if this one still does under *epoch*."""
        if self._master is not None:
            self._master.kill()
            self._store.cluster.save(self._master.files(), epoch=self._master.epoch)
            self._master = None
        self._store.cluster.resign(epoch)

    def _end_master(self) -> None:
        master, self._master = self._master, None
        if master is not None:
            master.kill()


def _derived(secret: str, record: ClusterRecord) -> str:
    """Return the secret of the cluster's own, which does not tell that of the nodes. Others may have the same nodes."""
    return hmac.digest(secret.encode(), record.salt.encode(), "sha256").hex()


def installed() -> Mapping[str, str]:
    """Return the versions here of what tasks may need, by distribution."""
    return versions_here(each.distribution for named in published(PLUGINS).values() for each in named)


def of_living(record: ClusterRecord, files: Mapping[str, str]) -> dict[str, str]:
    """Return the *files* of the last master without those of workers and drivers on dead nodes.

    The next master would wait for them. Spark names those of workers `worker_worker-<time>-<address>-<port>`.
    """
    living = {node.address for node in record.members}
    workers = {name: name.rpartition("-")[0].split("-", 2)[2] for name in files if name.startswith("worker_worker-")}
    dead = set(workers.values()) - living
    drivers = [f"AppClient@{address}:".encode() for address in dead]
    return {
        name: content
        for name, content in files.items()
        if workers.get(name) not in dead and not any(driver in b64decode(content) for driver in drivers)
    }
