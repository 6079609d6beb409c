"""Executors as processes of their own on the driver's host, which Spark itself starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.ndjson_rows import delivered
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import JAVA_OPTIONS

pytestmark = pytest.mark.slow

ROWS = 200


def test_a_local_cluster_delivers_every_row_and_writes_only_beside_the_state(
    make_db: Callable[[Path], SimulatedDatabase], tmp_path: Path
) -> None:
    """It begins without executors, as their allocation is dynamic: it has to get its first one."""
    db = make_db(tmp_path / "db")
    out = tmp_path / "out"
    names = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.shuffleTracking.enabled")
    spark = {
        "master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        **dict.fromkeys(names, "true"),
    }
    with Feed(tmp_path, db.uri, ["t"], options={"scan_chunk_rows": 10}, spark=spark, sink=f"file://{out}") as feed:
        feed.start("--once")
        assert feed.wait() == 0, feed.log_tail()
        assert re.search(r" (1 executor|2 executors) with \d task slot", feed.log()), feed.log()
        assert "checking executors" in feed.log()
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    assert list((tmp_path / "state").glob("*.spark.tmp/spark-home/work/*"))
