"""What crosses the network between the driver, the master and executors: tasks hold the secrets of source and sink."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import psutil
import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.ndjson_rows import delivered
from cdc_testing.processes import command
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

ROWS = 200
SECRET = "only-the-cluster-knows-it"
PRIVATE = {"spark.authenticate": "true", "spark.authenticate.secret": SECRET, "spark.network.crypto.enabled": "true"}


@pytest.fixture
def cluster(namespaces: None) -> Iterator[SparkCluster]:
    """Every connection to its master and workers is authenticated and encrypted."""
    with SparkCluster(conf=PRIVATE) as cluster:
        yield cluster


def test_an_encrypted_cluster_runs_a_changefeed_and_shows_its_secret_to_no_user_of_the_host(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out = cluster.shared / "out"
    running = feed(db, out, spark={"spark.authenticate": "true", "spark.authenticate.secret": SECRET})
    running.start()
    running.until("all rows", lambda: len(delivered(out, "t")) >= ROWS)
    shown = [command(process) for process in psutil.process_iter()]
    assert any("--driver-url spark://" in words for words in shown)
    assert not [words for words in shown if SECRET in words]
    running.stop()
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    assert subprocess.run(["grep", "-rlF", SECRET, running.state], capture_output=True).stdout == b""
