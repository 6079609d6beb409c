"""What a run says about executors that cannot run its tasks, or that it does not get."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.ndjson_rows import delivered
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster

import cdc_core

pytestmark = pytest.mark.slow

ROWS = 200

PLUGIN = "cdc-sink-cloudstorage"
BOTH = {"spark.executor.instances": "2"}
"""Waits until both workers have an executor."""


def ends(feed: Feed, *, status: int) -> str:
    """Run *feed*, see that it ends with *status* before it creates anything, and return its error."""
    feed.start("--once")
    assert feed.wait() == status, feed.log_tail()
    assert "warming up" not in feed.log()
    (error,) = [line for line in feed.log().splitlines() if line.startswith("error: ")]
    return error


def test_another_version_of_a_plugin_is_refused(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    installed = distribution(PLUGIN)
    metadata = (
        Path(str(installed.locate_file(""))) / f"{PLUGIN.replace('-', '_')}-{installed.version}.dist-info/METADATA"
    )
    other = tmp_path / "METADATA"
    other.write_text(metadata.read_text().replace(f"Version: {installed.version}\n", "Version: 9.9\n"))
    worker = cluster.workers[1]
    with cluster.seeing(worker, metadata, other):
        error = ends(feed(db, cluster.shared / "out", spark=BOTH), status=2)
    assert re.search(rf"executor \d+ on host {worker.host} has {PLUGIN} 9\.9, and the driver has", error)
    assert error.endswith(f"install {PLUGIN}=={installed.version} there, or run `cdc pack` again")


def test_a_host_without_the_installation_is_refused(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    core = Path(cdc_core.__file__).parent
    worker = cluster.workers[0]
    with cluster.seeing(worker, core, empty):
        error = ends(feed(db, cluster.shared / "out", spark=BOTH), status=2)
    assert re.search(rf"executor \d+ on host {worker.host} has no Python module cdc_core", error), error


def test_a_host_without_the_python_is_refused(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    spark = {"spark.pyspark.python": "/opt/nowhere/bin/python"}
    error = ends(feed(db, cluster.shared / "out", spark=spark), status=2)
    assert re.search(r"on host 127\.0\.0\.[23] has no Python at /opt/nowhere/bin/python; install", error), error


def test_a_run_that_gets_no_executor_says_what_it_asked_for_and_what_there_is(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    first = f"spark://127.0.0.1:{free_port()}"  # of two masters, the one that is down
    spark = {
        "master": f"{first},{cluster.master.url.removeprefix('spark://')}",
        "spark.executor.memory": "900g",
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
    }
    error = ends(feed(db, cluster.shared / "out", spark=spark, executor_wait="2s"), status=1)
    assert "no executor began within 2s (executor_wait)" in error
    assert "each needs every core of a worker, 900g of memory, 1 of resource gpu" in error
    assert f"the master {spark['master']} has 2 workers (127.0.0.2: 1 core, 1024 MB; 127.0.0.3: 1 core, " in error


def test_a_master_that_is_not_there_ends_the_run(db: SimulatedDatabase, feed: Callable[..., Feed]) -> None:
    spark = {"master": "spark://127.0.0.1:9", "spark.rpc.askTimeout": "2s"}
    error = ends(feed(db, db.directory / "out", spark=spark), status=1)
    assert "spark://127.0.0.1:9" in error


def test_a_run_whose_executors_are_gone_says_so_and_continues_when_there_are_some_again(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out = cluster.shared / "gone"
    running = feed(db, out, executor_wait="30s")
    running.start()
    running.until("all rows", lambda: len(delivered(out, "t")) >= ROWS, limit_s=180)
    first, second = cluster.workers
    with cluster.without(first), cluster.without(second):
        running.until("it says so", lambda: "(executor_wait): the master spark://" in running.log(), limit_s=240)
    db.put("t", id=ROWS, n=0)
    running.until("the next row", lambda: any(row["key"] == [ROWS] for row in delivered(out, "t")), limit_s=180)
    running.stop()


def test_dynamic_allocation_gets_its_first_executor(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    names = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.shuffleTracking.enabled")
    out = cluster.shared / "dynamic"
    running = feed(db, out, spark=dict.fromkeys(names, "true"))
    running.start("--once")
    assert running.wait() == 0, running.log_tail()
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
