"""What crosses the network between the driver, the master and executors: tasks hold the secrets of source and sink."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.files import delivered
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.processes import command
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SECRET

pytestmark = pytest.mark.slow

ROWS = 200


def test_an_encrypted_cluster_runs_a_changefeed_and_shows_its_secret_to_no_user_of_the_host(
    spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    running = feed(db, out)
    shown: list[str] = []

    def work() -> None:
        running.until("all rows", lambda: len(delivered(out, "t")) >= ROWS)
        shown.extend(map(command, psutil.process_iter()))

    running.during(spark, work)
    assert any("--driver-url spark://" in words for words in shown)
    assert not [words for words in shown if SECRET in words]
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    found = subprocess.run(["grep", "-rlF", SECRET, running.state, spark.directory], capture_output=True)
    assert found.stdout == b""
