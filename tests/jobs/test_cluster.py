"""Nodes with cores are a Spark cluster: a job runs on all of them, whichever leads it and whatever happens to one."""

from __future__ import annotations

import os
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.files import last_resolved
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import FAST, NodeProcess, Nodes
from cdc_testing.postgres import clock
from psutil import Error as PsutilError
from psutil import Process

from cdc_core.store.node_reports import node_reports

pytestmark = pytest.mark.slow
NAMES = ("one", "two", "three")
SECRET = "only-the-nodes-know-it"


@pytest.fixture
def nodes(postgres_server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("CDC_CLUSTER_SECRET", SECRET)
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store) as nodes:
        port = str(free_port())
        for number, name in enumerate(NAMES, start=1):
            where = ("--address", f"127.0.0.{number}", "--master-port", port)
            offered = ("--cores", "1", "--memory", "2gb", "--spark", "master=nodes")
            nodes.begin(name, options=(*FAST, *where, *offered))
        for name in NAMES:
            nodes.await_join(name)
        yield nodes


def executors(node: NodeProcess) -> set[int]:
    """Return the processes of the node in which slices run."""
    found = set()
    for process in node.tree():
        with suppress(PsutilError):
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                found.add(process.pid)
    return found


def spares(node: NodeProcess) -> list[Path]:
    """Return the directories of processes of the node that are ready for a job."""
    return [ready.parent for ready in node.directory.glob("spare-*/ready")]


def leader(nodes: Nodes) -> str | None:
    found = nodes.store.cluster.poll().leader
    return None if found is None else found.name


def parts(nodes: Nodes) -> list[tuple[int, Sequence[str]]]:
    """Return what the store says of each node: the cores that are used there, and the jobs that it aggregates."""
    return [(report.node.cores_used, report.aggregates) for report in node_reports(nodes.store)]


def test_a_job_runs_on_all_nodes_and_goes_on_when_one_is_killed_and_when_the_next_master_does_not_know_its_application(
    nodes: Nodes, database: str, tmp_path: Path
) -> None:
    """Such an application is one that registered in the last moment of a master."""
    files = tmp_path / "files"
    open_bank(database)
    with Bank(database, pause_s=0.05):
        nodes.eventually("spare processes", lambda: all(spares(nodes[name]) for name in NAMES))
        ready = {name: spares(nodes[name]) for name in NAMES}
        nodes.create("bank", database, TABLES, f"file://{files}")
        coordinator = nodes.until_delivering("bank")
        (taken,) = ready[coordinator.name]
        assert not (taken / "spark.log").exists(), "it is the job's now"
        nodes.eventually("executors on all nodes", lambda: all(executors(nodes[name]) for name in NAMES))
        nodes.eventually("all are shown to have a part", lambda: parts(nodes) == [(1, ["bank"])] * len(NAMES))
        running = {pid for name in NAMES for pid in executors(nodes[name])}
        secrets = {SECRET, *(Process(pid).environ()["_SPARK_AUTH_SECRET"] for pid in running)}
        killed = nodes[leader(nodes) or ""]
        kept = {name: executors(nodes[name]) for name in NAMES if name != killed.name}
        killed.kill()
        nodes.eventually("another leads", lambda: leader(nodes) not in (None, killed.name))
        if killed is coordinator:
            nodes.until_delivering("bank", but_not=killed)
        else:
            nodes.until_delivering("bank")
            assert kept == {name: executors(nodes[name]) for name in kept}, "the executors of live nodes keep running"
        coordinator = nodes[nodes.job("bank").node or ""]
        forget_the_application(nodes)
        nodes.eventually("it notices", lambda: "no longer knows the application" in coordinator.log())
        begun = coordinator.log().count(" task slots")
        nodes.eventually("it begins anew", lambda: coordinator.log().count(" task slots") > begun)
        until_moving(nodes)
    now = clock(database)
    nodes.eventually("all is resolved", lambda: last_resolved(files) >= now and nodes.high_water("bank") >= now)
    assert_faithful(files, database)
    written = {str(path): path.read_bytes() for path in (tmp_path / "nodes").rglob("*") if path.is_file()}
    kept_for_masters = nodes.store.cluster.files()
    assert kept_for_masters
    written |= {name: b64decode(content) for name, content in kept_for_masters.items()}
    assert len(secrets) == 2
    assert not [name for name, content in written.items() if any(secret.encode() in content for secret in secrets)]


def test_nodes_are_upgraded_one_by_one_while_a_job_runs(nodes: Nodes, database: str, tmp_path: Path) -> None:
    """The last one coordinates the job and leads: then only nodes of the new version are there to take over."""
    files, installed = tmp_path / "files", tmp_path / "installed" / "cdc_core-99.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: cdc-core\nVersion: 99\n")
    path = os.pathsep.join([str(installed.parent), *sys.path])
    open_bank(database)
    with Nodes(tmp_path / "nodes", nodes.url, python_path=path) as newer:
        with Bank(database, pause_s=0.05):
            nodes.create("bank", database, TABLES, f"file://{files}")
            last = nodes.until_delivering("bank").name
            while leader(nodes) != last:
                nodes.store.cluster.resign(nodes.store.cluster.poll().epoch)
                nodes.eventually("one leads", lambda: leader(nodes) is not None)
            for name in sorted(NAMES, key=last.__eq__):
                nodes[name].terminate()
                assert nodes[name].wait() == 0, nodes[name].log_tail()
                newer.start(name, options=nodes[name].options)
                until_moving(newer)
            assert newer.job("bank").node != last
            newer.eventually("executors on all nodes", lambda: all(executors(newer[name]) for name in NAMES))
        now = clock(database)
        newer.eventually("all is resolved", lambda: last_resolved(files) >= now and nodes.high_water("bank") >= now)
    assert {node.version for node in nodes.store.nodes.living()} == {"99"}
    assert_faithful(files, database)


def forget_the_application(nodes: Nodes) -> None:
    """Have another master lead, which knows the workers but no application."""
    cluster = nodes.store.cluster
    epoch, files = cluster.poll().epoch, cluster.files()
    others = {name: content for name, content in files.items() if not name.startswith("app_")}
    assert others != files
    assert cluster.save(others, epoch=epoch)
    cluster.resign(epoch)


def until_moving(nodes: Nodes) -> None:
    """Return when the job delivers."""
    seen = nodes.high_water("bank")
    nodes.eventually("it delivers", lambda: nodes.high_water("bank") > seen, limit_s=300)
