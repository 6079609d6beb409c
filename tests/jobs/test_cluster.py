"""Nodes with cores are a Spark cluster: a job runs on all of them, whichever leads it and whatever happens to one."""

from __future__ import annotations

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

from cdc_core.store.job_reports import node_reports

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
            nodes.begin(name, options=(*FAST, *where, "--cores", "1", "--memory", "2gb"))
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


def leader(nodes: Nodes) -> str | None:
    found = nodes.store.cluster.poll().leader
    return None if found is None else found.name


def parts(nodes: Nodes) -> list[tuple[int, Sequence[str]]]:
    """Return what the store says of each node: the cores that are used there, and the jobs that it aggregates."""
    return [(report.node.cores_used, report.aggregates) for report in node_reports(nodes.store)]


def test_a_job_runs_on_all_nodes_and_goes_on_when_the_leader_the_coordinator_or_another_is_killed(
    nodes: Nodes, database: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    open_bank(database)
    with Bank(database, pause_s=0.05):
        nodes.create("bank", database, TABLES, f"file://{files}", spark={"master": "nodes"})
        coordinator = nodes.until_delivering("bank")
        nodes.eventually("executors on all nodes", lambda: all(executors(nodes[name]) for name in NAMES))
        nodes.eventually("all are shown to have a part", lambda: parts(nodes) == [(1, ["bank"])] * len(NAMES))
        killed = nodes[leader(nodes) or ""]
        kept = {name: executors(nodes[name]) for name in NAMES if name != killed.name}
        killed.kill()
        nodes.eventually("another leads", lambda: leader(nodes) not in (None, killed.name))
        if killed is coordinator:
            nodes.until_delivering("bank", but_not=killed)
        else:
            nodes.until_delivering("bank")
            assert kept == {name: executors(nodes[name]) for name in kept}, "executors of living nodes go on"
    now = clock(database)
    nodes.eventually("all is resolved", lambda: last_resolved(files) >= now and nodes.high_water("bank") >= now)
    assert_faithful(files, database)
    written = {str(path): path.read_bytes() for path in (tmp_path / "nodes").rglob("*") if path.is_file()}
    kept_for_masters = nodes.store.cluster.files()
    assert kept_for_masters
    written |= {name: b64decode(content) for name, content in kept_for_masters.items()}
    assert not [name for name, content in written.items() if SECRET.encode() in content]
