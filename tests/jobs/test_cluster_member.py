"""The part of one node in the cluster: when it starts its worker anew. What it starts stands in for Java here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cdc_testing.engine import eventually
from cdc_testing.stored import node

from cdc_core.jobs import cluster
from cdc_core.jobs.lease import Lease
from cdc_core.jobs.settings import NodeSettings
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore

SECRET = "only-the-nodes-know-it"


class Daemon:
    """A master or a worker that runs until it is killed. A worker is `registered` with a master, when `asked`."""

    started: ClassVar[list[str]] = []
    registered: ClassVar[str | None] = None
    asked: ClassVar[int] = 0
    log_path = Path("worker.log")

    def __init__(self, *_where: Any, **options: Any) -> None:
        self.epoch = options.get("epoch")
        self.is_running = False

    @property
    def master(self) -> str | None:
        type(self).asked += 1
        return self.registered

    def files(self) -> dict[str, str]:
        return {}

    def start(self, *masters: str) -> None:
        self.is_running = True
        self.started.extend(masters)

    def kill(self) -> None:
        self.is_running = False


def test_a_worker_has_time_to_start_and_starts_anew_when_it_has_lost_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_CLUSTER_SECRET", SECRET)
    for name, value in {"_POLL_INTERVAL_S": 0.01, "_AGAIN_S": 0.0, "_ASTRAY_S": 0.0}.items():
        monkeypatch.setattr(cluster, name, value)
    for name in ("MasterProcess", "WorkerProcess"):
        monkeypatch.setattr(cluster, name, Daemon)
    monkeypatch.setattr(Daemon, "started", [])
    store = ProgressStore(store_url(tmp_path))
    store.open()
    settings = NodeSettings(store=store.url, name="one", directory=str(tmp_path), cores=1)
    lease = Lease(store, replace(node("one"), cores=1, master="127.0.0.1:7077"), lease_s=60, heartbeat_s=20)
    with cluster.Cluster(settings).joined(lease):
        for registered in (None, "spark://127.0.0.1:7077"):
            monkeypatch.setattr(Daemon, "registered", registered)
            monkeypatch.setattr(Daemon, "asked", 0)
            eventually(lambda: Daemon.asked > 9, what="the worker is watched")
            assert Daemon.started == ["spark://127.0.0.1:7077"]
        monkeypatch.setattr(Daemon, "registered", "spark://127.0.0.9:7077")
        eventually(lambda: len(Daemon.started) > 1, what="it starts anew")
    lease.end(leave=True)
    store.close()
