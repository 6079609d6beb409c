"""What a node does for its cluster, without Spark: it leads, resigns, and starts its worker anew."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from cdc_testing.local_engine import resolved_feed
from cdc_testing.runs import eventually

from cdc_core.engine import version_watch
from cdc_core.engine.error_text import one_line
from cdc_core.engine.host_requirements import required_versions
from cdc_core.jobs import cluster
from cdc_core.jobs.cluster import Cluster
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.settings import NodeSettings
from cdc_core.spark.log_file import LIMIT_BYTES
from cdc_core.store.cluster import ClusterRecord, ClusterRecords
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore

SECRET = "only-the-nodes-know-it"


class Process:
    """What stands for a master or a worker.

    Masters of the ports `in_use` end at once, those `hanging` say nothing, others have `alive` workers, which know
    `known`.
    """

    in_use: Collection[int] = ()
    hanging: Collection[int] = ()
    known: str | None = None
    asked = started = used = 0
    alive = 1
    running: ClassVar[set[int]] = set()
    """The ports of masters that run."""
    versions: ClassVar[list[Mapping[str, str]]] = []
    """What the workers offered, one after another."""
    last_written: ClassVar[dict[str, str]] = {}
    """What masters write in the moment in which they end."""
    secrets: ClassVar[list[str]] = []
    """Those of masters and workers, one after another."""

    def __init__(self, home: Path, *, port: int = 0, epoch: int = 0, **more: Any) -> None:
        self.epoch, self.port = epoch, port
        self.versions += [more["versions"]] if "versions" in more else []
        self.secrets.append(more["secret"])
        self._given = dict(more.get("files", {}))
        self.is_running = False
        self.log_path = home / "its.log"

    def start(self, *masters: str) -> None:
        type(self).started += bool(masters)
        self.is_running = self.port not in self.in_use
        if self.is_running and self.port:
            self.running.add(self.port)

    def files(self) -> dict[str, str]:
        return self._given if self.is_running else self._given | self.last_written

    def state(self) -> dict[str, object] | None:
        if self.port:
            return None if self.port in self.hanging else {"aliveworkers": self.alive}
        type(self).asked += 1
        return {} if self.known is None else {"masterurl": self.known, "coresused": self.used}

    def kill(self) -> None:
        self.is_running = False
        self.running.discard(self.port)

    abandon = kill


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressStore]:
    monkeypatch.setattr(cluster, "MasterProcess", Process)
    monkeypatch.setattr(cluster, "WorkerProcess", Process)
    monkeypatch.setattr(cluster, "_POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(cluster, "_AGAIN_S", 0.0)
    for name, value in {"in_use": (), "hanging": (), "known": None, "asked": 0, "started": 0, "used": 0}.items():
        monkeypatch.setattr(Process, name, value)
    monkeypatch.setattr(Process, "versions", [])
    monkeypatch.setattr(Process, "secrets", [])
    monkeypatch.setattr(Process, "last_written", {})
    monkeypatch.setenv("CDC_CLUSTER_SECRET", SECRET)
    store = ProgressStore(store_url(tmp_path))
    store.open()
    yield store
    store.close()


def join(stack: ExitStack, store: ProgressStore, home: Path, name: str, port: int) -> tuple[Cluster, Lease]:
    """Have a node take part until *stack* is closed, and return its part and its lease."""
    settings = NodeSettings(store=store.url, name=name, directory=str(home / name), cores=1, master_port=port)
    lease = Lease(ProgressStore(store.url), settings.record(), lease_s=60, heartbeat_s=1)
    stack.callback(lease.end, leave=True)
    joined = Cluster(settings)
    stack.enter_context(joined.joined(lease))
    return joined, lease


def leader(store: ProgressStore) -> str:
    found = store.cluster.poll().leader
    return "" if found is None else found.name


def test_a_node_whose_master_ends_by_itself_lets_another_one_lead(
    store: ProgressStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Process.in_use = {7001}
    with ExitStack() as stack:
        join(stack, store, tmp_path, "one", 7001)
        eventually("it resigns", lambda: "check that port 7001 is free" in caplog.text)
        join(stack, store, tmp_path, "two", 7002)
        eventually("the other one leads", lambda: leader(store) == "two")


@pytest.mark.parametrize("how", ["drains", "leaves", "has lost its session"])
def test_a_node_that_ends_its_part_lets_another_one_lead_with_all_that_its_master_has_written(
    how: str, store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it drains, jobs already begin elsewhere: they are to register with the next master."""
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        part, lease = join(first, store, tmp_path, "one", 7001)
        eventually("its master runs", lambda: Process.running == {7001})
        join(stack, store, tmp_path, "two", 7002)
        monkeypatch.setattr(Process, "last_written", {"app_1": "YQ=="})
        match how:
            case "drains":
                store.nodes.drain(lease.node.node_id)
            case "leaves":
                first.close()
            case _:
                part.abandon()
        eventually("the other one leads", lambda: Process.running == {7002})
        assert store.cluster.files() == {"app_1": "YQ=="}


def test_the_only_node_leads_while_it_drains(store: ProgressStore, tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, lease = join(stack, store, tmp_path, "one", 7001)
        eventually("its master runs", lambda: Process.running == {7001})
        store.nodes.drain(lease.node.node_id)
        watched = Process.asked
        eventually("the worker is watched", lambda: Process.asked > watched + 9)
        assert (leader(store), Process.running) == ("one", {7001})


def test_nodes_of_two_stores_with_one_secret_are_two_clusters(store: ProgressStore, tmp_path: Path) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(closing(ProgressStore(store_url(tmp_path / "other"))))
        other.open()
        join(stack, store, tmp_path, "one", 7001)
        join(stack, other, tmp_path, "two", 7002)
        eventually("each has a master and a worker", lambda: len(Process.secrets) == 4)
    assert sorted(Counter(Process.secrets).values()) == [2, 2]
    assert SECRET not in Process.secrets


def test_a_master_ends_with_the_lease_of_its_node_although_the_store_hangs(
    store: ProgressStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the executors of others for lost, as their workers know the next master."""
    hangs, mended, poll = threading.Event(), threading.Event(), ClusterRecords.poll

    def hang(records: ClusterRecords, *_: object) -> ClusterRecord:
        found = poll(records)
        hangs.set()
        mended.wait()
        return found

    with ExitStack() as stack:
        part, _ = join(stack, store, tmp_path, "one", 7001)
        stack.callback(mended.set)
        eventually("its master runs", lambda: Process.running == {7001})
        monkeypatch.setattr(ClusterRecords, "poll", hang)
        assert hangs.wait(60)
        part.abandon()
        assert Process.running == set()
    assert "has ended" not in caplog.text, "by itself, that would mean"


def test_the_cores_in_use_are_told_while_nobody_leads_and_none_at_the_end(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Process.in_use = {7001}
    with ExitStack() as stack:
        _, lease = join(stack, store, tmp_path, "one", 7001)
        eventually("it has a worker and has resigned", lambda: Process.started == 1 and leader(store) == "")
        monkeypatch.setattr(Process, "used", 2)
        monkeypatch.setattr(Process, "known", "spark://127.0.0.1:7001")
        eventually("it is told", lambda: lease.cores_used == 2)
    assert lease.cores_used == 0


@pytest.mark.parametrize("error", [KeyError("cores"), OSError(28, "No space left on device")])
def test_a_node_that_fails_unexpectedly_resigns_and_goes_on(
    error: Exception,
    store: ProgressStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "_RESIGNED_S", 1.0)
    with ExitStack() as stack, monkeypatch.context() as broken:
        broken.setattr(Process, "state", Mock(side_effect=error))
        join(stack, store, tmp_path, "one", 7001)
        eventually("it fails", lambda: f"its part of the cluster failed: {one_line(error)}" in caplog.text)
        eventually("it resigns", lambda: leader(store) == "")
        broken.undo()
        eventually("it leads again", lambda: leader(store) == "one")
        eventually("the worker is watched", lambda: Process.asked > 0)


def test_a_worker_has_time_to_start_and_starts_anew_when_it_has_lost_the_master(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_ASTRAY_S", 0.0)
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        join(stack, store, tmp_path, "one", port)
        for known in (None, f"spark://127.0.0.1:{port}"):
            monkeypatch.setattr(Process, "known", known)
            monkeypatch.setattr(Process, "asked", 0)
            eventually("the worker is watched", lambda: Process.asked > 9)
            assert Process.started == 1
        monkeypatch.setattr(Process, "known", "spark://127.0.0.9:7077")
        eventually("it is restarted", lambda: Process.started > 1)


def test_a_worker_starts_anew_when_other_versions_are_installed(
    store: ProgressStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_watch, "_POLL_INTERVAL_S", 0.0)
    installed = {"cdc-core": "1.0"}
    monkeypatch.setattr(cluster, "installed", installed.copy)
    with ExitStack() as stack:
        join(stack, store, tmp_path, "one", 7001)
        eventually("the worker is watched", lambda: Process.asked > 9)
        assert Process.versions == [{"cdc-core": "1.0"}]
        installed["cdc-core"] = "1.1"
        eventually("another one is started", lambda: Process.versions[1:] == [{"cdc-core": "1.1"}])
        assert "its worker restarts, because other versions are installed now" in caplog.text


def test_workers_offer_what_jobs_ask_for(tmp_path: Path) -> None:
    feed = resolved_feed(f"simulated://{tmp_path}", "null://", "t")
    asked = required_versions(feed)
    assert {"cdc-core", "cdc-sink-null"} <= asked.keys()
    assert asked.items() <= cluster.installed().items()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds pass, and the node look at its worker after that."""
    now = 0.0
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now))

    def later(passed_s: float) -> None:
        nonlocal now
        now += passed_s
        monkeypatch.setattr(Process, "asked", 0)
        eventually("the worker is watched", lambda: Process.asked > 9)

    return later


def test_a_worker_that_is_silent_for_a_while_goes_on(
    store: ProgressStore,
    tmp_path: Path,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        monkeypatch.setattr(Process, "known", f"spark://127.0.0.1:{port}")
        join(stack, store, tmp_path, "one", port)
        later(0)
        monkeypatch.setattr(Process, "known", None)
        for _ in range(3):
            later(cluster._SILENT_S / 3)
            assert Process.started == 1
        later(cluster._SILENT_S / 3)
        eventually("it is restarted", lambda: Process.started > 1)
        assert "has not answered for 120 seconds" in caplog.text


def test_a_worker_goes_on_while_the_master_takes_long_to_start(
    store: ProgressStore,
    tmp_path: Path,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Process, "known", "spark://127.0.0.9:7077")
    with ExitStack() as stack, socket.socket() as master:
        master.bind(("127.0.0.1", 0))
        join(stack, store, tmp_path, "one", master.getsockname()[1])
        eventually("it is started", lambda: Process.started == 1)
        for _ in range(8):
            later(cluster._ASTRAY_S / 2)
        assert "must be open between all nodes" in caplog.text
        master.listen(100)
        later(cluster._ASTRAY_S / 2)
        assert Process.started == 1, "it has as long from now on"
        later(cluster._ASTRAY_S)
        eventually("it is restarted", lambda: Process.started > 1)
        assert "check that both nodes have the same secret" in caplog.text


@pytest.mark.parametrize(
    ("what", "value", "limit_s", "says"),
    [
        ("hanging", {7001}, cluster._MASTER_SILENT_S, "has not answered for 60 seconds"),
        ("alive", 0, cluster._FEW_S, "has had fewer than half of the workers for 180 seconds"),
    ],
)
def test_a_master_that_hangs_or_reaches_few_nodes_is_replaced_by_one_that_knows_all_it_has_written(
    what: str,
    value: object,
    limit_s: float,
    says: str,
    store: ProgressStore,
    tmp_path: Path,
    later: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Process, "known", "spark://127.0.0.1:7001")
    with ExitStack() as stack:
        join(stack, store, tmp_path, "one", 7001)
        eventually("it leads", lambda: leader(store) == "one" and 7001 in Process.running)
        later(limit_s * 2)
        monkeypatch.setattr(Process, "last_written", {"app_1": "YQ=="})
        monkeypatch.setattr(Process, what, value)
        later(limit_s / 2)
        assert 7001 in Process.running
        later(limit_s)
        eventually("it resigns", lambda: f"because the cluster's master here {says}" in caplog.text)
        join(stack, store, tmp_path, "two", 7002)
        eventually("the other one leads", lambda: leader(store) == "two")
        assert store.cluster.files() == {"app_1": "YQ=="}


@pytest.mark.parametrize(
    ("where", "address", "is_told"),
    [("postgresql:///app", "", True), ("postgresql:///app", "10.0.0.1", False), ("sqlite:////app.db", "", False)],
)
def test_a_node_that_no_other_host_reaches_says_so(
    where: str, address: str, is_told: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_CLUSTER_SECRET", SECRET)
    Cluster(NodeSettings(store=where, name="one", directory="", cores=1, address=address))
    assert ("an address that other hosts cannot reach; set --address" in caplog.text) is is_told


def test_the_log_of_master_and_worker_does_not_grow_without_limit(store: ProgressStore, tmp_path: Path) -> None:
    with ExitStack() as stack:
        join(stack, store, tmp_path, "one", 7001)
        eventually("it is started", lambda: Process.started == 1)
        log = tmp_path / "one" / "cluster" / "its.log"
        log.parent.mkdir(parents=True)
        with log.open("wb") as written:
            written.truncate(LIMIT_BYTES + 1)
        eventually("it is rotated", lambda: log.with_name("its.log.1").exists() and not log.stat().st_size)
