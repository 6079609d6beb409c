"""What a run says about executors that cannot run its tasks, and about a cluster that gives it none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import distribution
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster

import cdc_core

pytestmark = pytest.mark.slow

PLUGIN = "cdc-sink-cloudstorage"


@pytest.fixture
def without(cluster: SparkCluster, tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Has all workers see an empty directory in place of another one, until the end of the test."""
    with ExitStack() as stack:

        def replace(directory: Path) -> None:
            empty = tmp_path / "empty"
            empty.mkdir()
            for worker in cluster.workers:
                stack.enter_context(worker.seeing(directory, empty))

        yield replace


def test_another_version_of_a_plugin_is_refused(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    installed = distribution(PLUGIN)
    metadata = (
        Path(str(installed.locate_file(""))) / f"{PLUGIN.replace('-', '_')}-{installed.version}.dist-info/METADATA"
    )
    other = tmp_path / "METADATA"
    other.write_text(metadata.read_text().replace(f"Version: {installed.version}\n", "Version: 9.9\n"))
    worker = cluster.workers[1]
    with worker.seeing(metadata, other):
        error = feed(db, out).refusal(spark)
    assert re.search(rf"executor \d+ on host {worker.host} has {PLUGIN} 9\.9, but the driver has", error)
    assert error.endswith(f"install {PLUGIN}=={installed.version} there, or run `cdc pack` again")


def test_a_host_without_the_installation_is_refused(
    without: Callable[[Path], None], spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    without(Path(cdc_core.__file__).parent)
    error = feed(db, out).refusal(spark)
    assert re.search(r"executor \d+ on host 127\.0\.0\.[23] has no Python module cdc_core", error), error


def test_a_host_without_the_python_is_refused(
    without: Callable[[Path], None], spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    without(Path(sys.executable).parent)
    error = feed(db, out).refusal(spark)
    assert re.search(rf"on host 127\.0\.0\.[23] has no Python at {sys.executable}; install", error), error


def test_a_master_that_is_not_there_ends_the_run(make_db: Callable[[Path], SimulatedDatabase], tmp_path: Path) -> None:
    spark = {"master": "spark://127.0.0.1:9", "spark.rpc.askTimeout": "2s", "spark.authenticate": "false"}
    sink = f"file://{tmp_path}/out"
    with Feed(tmp_path, make_db(tmp_path / "db").uri, ["t"], spark=spark, sink=sink) as feed:
        feed.start("--once")
        assert feed.wait() == 1, feed.log_tail()
    assert re.search("^error: .*spark://127.0.0.1:9 ", feed.log(), re.M), feed.log_tail()
    assert "warming up" not in feed.log()
